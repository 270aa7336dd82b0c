"""A training whose own handler of SIGTERM saves together: a barrier, then rank 0 writes.

HOW is `step`: the handler notes the signal and the ranks agree at their next step; or `handler`: the handler itself
does it all. ENDED lists the ranks that ended by themselves. After a save, a later round has nothing to do.
"""

import os
import signal
import sys
import time
from pathlib import Path
from types import FrameType

import torch
import torch.distributed as dist

FOLDER, HOW = Path(os.environ["ENDS"]), os.environ["HOW"]
asked = False


def save_together() -> None:
    """Write what all ranks have, and end."""
    dist.barrier()
    time.sleep(0.3)  # as the writing of something large
    if dist.get_rank() == 0:
        (FOLDER / "saved").write_text(f"by {dist.get_world_size()}")
    dist.barrier()
    (FOLDER / f"ended-{dist.get_rank()}").touch()
    sys.stdout.flush()
    os._exit(0)


def note(signum: int, frame: FrameType | None) -> None:
    """Handle SIGTERM."""
    global asked
    asked = True
    if HOW == "handler":
        save_together()


dist.init_process_group("gloo")
print("works after a save" if (FOLDER / "saved").exists() else "works", flush=True)
if (FOLDER / "saved").exists():
    sys.exit()
signal.signal(signal.SIGTERM, note)
dist.barrier()
(FOLDER / f"ready-{dist.get_rank()}").touch()
while True:
    time.sleep(0.05)
    if HOW == "step":
        wanted = torch.tensor([int(asked)])
        dist.all_reduce(wanted, op=dist.ReduceOp.MAX)
        if wanted.item():
            save_together()
