"""What the workers of test_autoscaling.py run: they count steps together, and work or rest as any of them is told to.

A member is told by a file (`touch`), and all agree at each step. Each keeps the step in its own pod, and after a change
of members the one that has come furthest tells the others, so the count never starts again.
"""

import time
from pathlib import Path

import torch
import torch.distributed as dist

STEP, REST, END = Path("/tmp/step"), Path("/tmp/rest"), Path("/tmp/end")


def most(*values: int) -> list[int]:
    """Each value as the member has it who has the highest."""
    found = torch.tensor(values)
    dist.all_reduce(found, op=dist.ReduceOp.MAX)
    return [int(value) for value in found]


def save(step: int) -> None:
    """Keep the step in one move: a worker may be stopped at any moment."""
    part = STEP.with_suffix(".part")
    part.write_text(str(step))
    part.replace(STEP)


def work() -> None:
    """Use the CPU for a while, however many others do: a share of it would depend on the machine."""
    end = time.process_time() + 0.3
    while time.process_time() < end:
        pass


def main() -> None:
    """Step until somebody is told to end."""
    dist.init_process_group("gloo")
    [step] = most(int(STEP.read_text()) if STEP.exists() else 0)
    end = False
    while not end:
        step += 1
        rest, end = map(bool, most(REST.exists(), END.exists()))
        save(step)
        print(f"step={step} members={dist.get_world_size()}", flush=True)
        if not rest:
            work()
        time.sleep(0.3)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
