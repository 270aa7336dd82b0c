"""A PySpark job in which each executor trains a model of its own, with DDP over several processes.

Spark gives each partition to a task. The task starts a standalone run: its processes form one world, and know nothing
of the runs of other executors, also on the same machine. No port is chosen anywhere.

environment: SPARK_MASTER (two executors on this machine), PROCESSES (of each run)
"""

import os
import time
from collections.abc import Iterator
from typing import Any

from pyspark import BarrierTaskContext
from pyspark.sql import SparkSession

PROCESSES = int(os.environ.get("PROCESSES", "2"))
SPARK_MASTER = os.environ.get("SPARK_MASTER", f"local-cluster[2,{PROCESSES},1024]")  # executors, cores and MiB of each
LINES = [(2.0, 1.0), (-3.0, 5.0)]  # slope and offset of each partition's points: what its run has to find

Point = tuple[float, float]


def points(line: Point) -> list[Point]:
    """Return points on a line."""
    slope, offset = line
    return [(x / 10, slope * x / 10 + offset) for x in range(-10, 11)]


def train(rows: list[Point]) -> dict[str, Any]:
    """Fit a line to the rows. This runs in every process: each takes its part of them."""
    import torch
    import torch._dynamo  # before the process group, which then ends all of gloo's threads
    import torch.distributed as dist
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel

    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    mine = torch.tensor(rows[rank::world])
    torch.manual_seed(7)
    net = DistributedDataParallel(nn.Linear(1, 1))
    optimizer = torch.optim.Adam(net.parameters(), lr=0.2)
    for _ in range(200):
        optimizer.zero_grad()
        nn.functional.mse_loss(net(mine[:, :1]), mine[:, 1:]).backward()
        optimizer.step()
    slope, offset = (float(each) for each in net.parameters())
    return {"world": world, "port": int(os.environ["MASTER_PORT"]), "slope": slope, "offset": offset}


def train_partition(rows: Iterator[Point]) -> Iterator[dict[str, Any]]:
    """Run in a task: train on the rows of its partition. A run that fails is a failed task, with its traceback."""
    from pytorchjob_agent import run_standalone

    task = BarrierTaskContext.get()
    mine = list(rows)
    task.barrier()  # all are here: from now on the runs of all executors go on at once
    began = time.time()
    result = run_standalone(train, PROCESSES, env={"OMP_NUM_THREADS": "1"}, args=[mine]).check()
    executor = task.getTaskInfos()[task.partitionId()].address
    yield {"executor": executor, "began": began, "ended": time.time(), **result.values[0]}


def main() -> None:
    """Train one model for each partition, and print what each has learned."""
    builder = SparkSession.builder.master(SPARK_MASTER).appName("standalone-runs")
    builder = builder.config("spark.task.cpus", PROCESSES)  # as many cores as a run has processes
    spark = builder.config("spark.executorEnv.PYTHONPATH", os.environ.get("PYTHONPATH", "")).getOrCreate()
    rows = spark.sparkContext.parallelize(LINES, len(LINES)).flatMap(points)
    found = rows.barrier().mapPartitions(train_partition).collect()
    for run in found:
        words = f"executor={run['executor']} world={run['world']} port={run['port']}"
        print(f"{words} slope={run['slope']:.2f} offset={run['offset']:.2f}", flush=True)
    last, first = max(run["began"] for run in found), min(run["ended"] for run in found)
    print(f"runs={len(found)} at_once={last < first}", flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
