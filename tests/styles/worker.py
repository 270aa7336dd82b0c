"""A training that saves in one of the styles of `styles.py`; its losses depend on the step and the loaded state alone.

It writes what it loads, each loss, and when a save begins and ends to a file of records, which is not in the pod's
memory. It trains until the file STOP exists.
"""

import hashlib
import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from tests.styles.states import fresh, gradient, loss_of, target, update
from tests.styles.styles import STYLES, Run, sizes


def digest(state: Mapping[str, Any]) -> str:
    """A name of what a rank has loaded."""
    parts = (state["model"]["w"], state["optimizer"]["v"])
    return hashlib.sha256(b"".join(part.numpy().tobytes() for part in parts)).hexdigest()[:12]


def main() -> None:
    """Load, train and save."""
    records = os.open(os.environ["RECORDS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def note(kind: str, **values: object) -> None:
        os.write(records, (json.dumps({"kind": kind, "rank": rank, **values}) + "\n").encode())

    stop, style, folder = Path(os.environ["STOP"]), STYLES[os.environ["STYLE"]], Path(os.environ["FOLDER"])
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    folder.mkdir(exist_ok=True)
    run = Run(folder, rank, world)
    round_ = os.environ["PYTORCHJOB_ROUND_ID"]
    about: dict[str, object] = {"round": round_, "pid": os.getpid(), "files": sizes(folder)}
    try:
        state = style.load(run) or fresh(rank)
        style.loaded(run)
    except Exception as error:
        note("start", **about, error=f"{type(error).__name__}: {error}"[:500])
        raise
    steps = {name: state[name]["step"] for name in ("model", "optimizer")}
    note("start", **about, steps=steps, digest=digest(state), of=state["rank"] if style.own else rank)
    step = int(state["model"]["step"])
    while True:
        step += 1
        w = state["model"]["w"]
        data = target(step, rank)
        sums = torch.cat([gradient(w, data), loss_of(w, data), torch.tensor([float(stop.exists())])])
        dist.all_reduce(sums)
        update(state, step, sums[:-2] / world)
        note("step", step=step, loss=float(sums[-2]) / world)
        if step % style.every == 0:
            note("saving", step=step)
            style.save(run, state)
            note("saved", step=step)
        if sums[-1] == world:
            break
        style.after_step(run, step)
        time.sleep(style.seconds)
    style.finish(run)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
