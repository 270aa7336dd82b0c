"""A real LocalElasticAgent with a rendezvous that is over at once, and workers of one line."""

import sys
from pathlib import Path
from typing import Any

import torch.distributed
from torch.distributed.elastic.agent.server.api import WorkerSpec
from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent
from torch.distributed.elastic.multiprocessing.api import DefaultLogsSpecs
from torch.distributed.elastic.rendezvous import RendezvousHandler, RendezvousInfo, RendezvousStoreInfo

from pytorchjob_agent import torch_compat
from tests.waiting import until

dist: Any = torch.distributed  # its stores are put there at run time

SLEEP = "import time; time.sleep(600)"
TELL = "import json, os; print(json.dumps(dict(os.environ)))"
DEAF = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(600)"
ONE_FAILS = "import os, sys, time; os.environ['LOCAL_RANK'] == '1' and sys.exit(7); time.sleep(600)"


class Meeting(RendezvousHandler):
    """Assigns what it was made with, in an own store each round."""

    def __init__(self, rank: int = 0, nodes: int = 1) -> None:
        self.place = (rank, nodes)
        self.rounds = 0
        self.shutdowns = 0

    def get_backend(self) -> str:
        return "meeting"

    @property
    def use_agent_store(self) -> bool:
        return True

    def next_rendezvous(self) -> RendezvousInfo:
        self.rounds += 1
        return RendezvousInfo(dist.HashStore(), *self.place, RendezvousStoreInfo("10.0.0.1", 1234))

    def is_closed(self) -> bool:
        return False

    def set_closed(self) -> None:
        return

    def num_nodes_waiting(self) -> int:
        return 0

    def get_run_id(self) -> str:
        return "the-run"

    def shutdown(self) -> bool:
        self.shutdowns += 1
        return True


def make(
    directory: Path, code: str, nproc: int = 1, meeting: Meeting | None = None, cls: type[Any] = LocalElasticAgent
) -> Any:
    """Make an agent as the launcher does; nothing is started."""
    options = torch_compat.supported(
        WorkerSpec.__init__,
        role="default",
        local_world_size=nproc,
        rdzv_handler=meeting or Meeting(),
        entrypoint=sys.executable,
        args=("-c", code),
        max_restarts=5,
        monitor_interval=0.05,
        event_log_handler="null",
    )
    return cls(
        **torch_compat.supported(
            LocalElasticAgent.__init__,
            spec=WorkerSpec(**options),
            logs_specs=Files(log_dir=str(directory)),
            start_method="spawn",
            shutdown_timeout=30,
        )
    )


class Files(DefaultLogsSpecs):
    """Sends what worker n prints to <directory>/<n>.out."""

    def reify(self, envs: dict[int, dict[str, str]]) -> Any:
        destinations = super().reify(envs)
        for local_rank in envs:
            destinations.stdouts[local_rank] = str(Path(self.root_log_dir) / f"{local_rank}.out")
        return destinations


def group(agent: Any) -> Any:
    """Return the agent's WorkerGroup."""
    return agent.get_worker_group()


def begin(agent: Any) -> Any:
    """Run a rendezvous and start the workers."""
    agent._initialize_workers(group(agent))
    return agent


def until_over(agent: Any) -> Any:
    """Poll the workers until they have ended; returns torch's RunResult."""
    results = []

    def over() -> bool:
        results.append(agent._monitor_workers(group(agent)))
        return bool(results[-1].state.name != "HEALTHY")

    until(over)
    return results[-1]
