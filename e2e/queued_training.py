"""What the workers of test_kueue.py run: they count steps together, and keep the count only when they are asked to."""

import os
import time
from pathlib import Path

import torch
import torch.distributed as dist

from pytorchjob_agent import checkpoint_requested, progress, should_stop

STEP, STOP = Path("/tmp/step"), Path("/tmp/stop")


def main() -> None:
    """Step until a worker is told to stop."""
    dist.init_process_group("gloo")
    rank, world, count = dist.get_rank(), dist.get_world_size(), os.environ["TORCHELASTIC_RESTART_COUNT"]
    step = torch.tensor(int(STEP.read_text()) if STEP.exists() else 0)
    dist.all_reduce(step, dist.ReduceOp.MAX)
    print(f"start rank={rank} world={world} from={int(step)} pid={os.getpid()} restarts={count}", flush=True)
    stop = torch.zeros(1)
    while not stop:
        step += 1
        stop.fill_(STOP.exists())
        dist.all_reduce(stop)
        print(f"step={int(step)} world={world}", flush=True)
        progress(int(step))
        if checkpoint_requested():
            part = STEP.with_suffix(".part")
            part.write_text(str(int(step)))
            part.replace(STEP)
        if should_stop():
            break
        time.sleep(0.1)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
