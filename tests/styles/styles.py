"""How users save to a path, and load the newest save: one entry in STYLES for each style.

Each file is written in two halves with a pause between them, and there is a pause between the files of a save: what
is small here takes seconds in a real training, and a kill has to find it half done.
"""

import copy
import io
import json
import multiprocessing
import os
import pickle
import re
import shutil
import tarfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

from tests.styles.states import SIZE, State

PAUSE = 0.05


@dataclass
class Run:
    """Where a worker saves, and who it is."""

    folder: Path
    rank: int
    world: int
    writer: Any = None
    """The thread or the process that writes."""
    future: Any = None
    group: Any = None
    table: TextIO | None = None

    @property
    def first(self) -> bool:
        """Whether it has rank 0."""
        return self.rank == 0


def _nothing(run: Run) -> None:
    pass


def _no_step(run: Run, step: int) -> None:
    pass


@dataclass(frozen=True)
class Style:
    """One way of saving."""

    save: Callable[[Run, State], None]
    """All ranks call it."""
    load: Callable[[Run], State | None]
    """All ranks call it. None: there is nothing to load."""
    family: str = "one file"
    """The tests' file."""
    loaded: Callable[[Run], None] = _nothing
    """After the load."""
    after_step: Callable[[Run, int], None] = _no_step
    finish: Callable[[Run], None] = _nothing
    every: int = 100
    """Steps between two saves."""
    seconds: float = 0.02
    """Of a step: a folder needs more time without a change until it counts as complete."""
    often: bool = False
    """`make test` disturbs it once, and not only `make test-long`."""
    world: int = 2
    own: bool = False
    """Each rank loads what it has saved itself."""
    late: int = 0
    """Saves that are still being written when the next one begins."""
    forgets: bool = False
    """The script itself removes what it has saved."""
    keeps: tuple[str, ...] = ()
    """Files beside the checkpoints that only grow."""


def sizes(folder: Path) -> dict[str, int]:
    """The script's own files below a folder, with their sizes; the agent changes its folder meanwhile."""
    found = dict[str, int]()
    for where, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".pytorchjob")]
        for path in (Path(where, name) for name in names):
            with suppress(FileNotFoundError):
                found[str(path.relative_to(folder))] = path.lstat().st_size
    return found


def put(path: Path, data: bytes) -> None:
    """Write a file as a slow writer does."""
    with path.open("wb", buffering=0) as file:
        file.write(data[: len(data) // 2])
        time.sleep(PAUSE)
        file.write(data[len(data) // 2 :])


def save(value: object, path: Path) -> None:
    """torch.save, slowly."""
    buffer = io.BytesIO()
    torch.save(value, buffer)
    put(path, buffer.getvalue())


def pause() -> None:
    """Between two files of a save."""
    time.sleep(PAUSE)


def load(path: Path) -> Any:
    """torch.load."""
    return torch.load(path, weights_only=True)


def newest(folder: Path, pattern: str) -> Path | None:
    """The file or folder with the highest number."""
    found = {int(match[1]): path for path in folder.iterdir() if (match := re.fullmatch(pattern, path.name))}
    return found[max(found)] if found else None


def step_of(state: State) -> int:
    """The step of a state."""
    return int(state["model"]["step"])


def rotate(folder: Path, pattern: str, keep: int) -> None:
    """Remove all but the newest."""
    found = {int(match[1]): path for path in folder.iterdir() if (match := re.fullmatch(pattern, path.name))}
    for step in sorted(found)[:-keep]:
        found[step].unlink()


def save_in_place(run: Run, state: State) -> None:
    if run.first:
        save(state, run.folder / "latest.pt")


def load_latest(run: Run) -> State | None:
    path = run.folder / "latest.pt"
    return load(path) if path.exists() else None


def save_renamed(run: Run, state: State) -> None:
    if run.first:
        save(state, run.folder / "latest.pt.tmp")
        os.replace(run.folder / "latest.pt.tmp", run.folder / "latest.pt")


def save_numbered_renamed(run: Run, state: State) -> None:
    if run.first:
        name = f"step-{step_of(state)}.pt"
        save(state, run.folder / f"{name}.tmp")
        os.replace(run.folder / f"{name}.tmp", run.folder / name)
        rotate(run.folder, r"step-(\d+)\.pt", 3)


def save_numbered(run: Run, state: State) -> None:
    if run.first:
        save(state, run.folder / f"step-{step_of(state)}.pt")
        rotate(run.folder, r"step-(\d+)\.pt", 3)


def load_numbered(run: Run) -> State | None:
    path = newest(run.folder, r"step-(\d+)\.pt")
    return load(path) if path else None


def save_pointer(run: Run, state: State) -> None:
    if run.first:
        name = f"model_{step_of(state)}.pt"
        save(state, run.folder / name)
        pause()
        (run.folder / "latest_checkpointed_iteration.txt").write_text(name)
        rotate(run.folder, r"model_(\d+)\.pt", 3)


def load_pointer(run: Run) -> State | None:
    pointer = run.folder / "latest_checkpointed_iteration.txt"
    return load(run.folder / pointer.read_text()) if pointer.exists() else None


def _save_linked(run: Run, state: State, prefix: str) -> None:
    if run.first:
        name = f"ckpt-{step_of(state)}.pt"
        save(state, run.folder / name)
        pause()
        link = run.folder / "latest"
        link.unlink(missing_ok=True)
        link.symlink_to(f"{prefix}{name}")
        rotate(run.folder, r"ckpt-(\d+)\.pt", 3)


def save_linked(run: Run, state: State) -> None:
    _save_linked(run, state, "")


def save_linked_absolute(run: Run, state: State) -> None:
    _save_linked(run, state, f"{run.folder}/")


def load_linked(run: Run) -> State | None:
    link = run.folder / "latest"
    return load(link) if link.exists() else None


def save_best_and_last(run: Run, state: State) -> None:
    """Every second save is the best so far."""
    if run.first:
        save(state, run.folder / "last.pt")
        pause()
        if step_of(state) // 100 % 2 == 1:
            save(state, run.folder / "best.pt")


def load_best_and_last(run: Run) -> State | None:
    last, best = run.folder / "last.pt", run.folder / "best.pt"
    if not last.exists():
        return None
    state = load(last)
    if step_of(state) > 100 and step_of(load(best)) > step_of(state):
        raise ValueError("the best one is newer than the last one")
    return dict(state)


def save_two_files(run: Run, state: State) -> None:
    if run.first:
        save(state["model"], run.folder / "model.pt")
        pause()
        save(state["optimizer"], run.folder / "optimizer.pt")


def save_two_files_slowly(run: Run, state: State) -> None:
    """The optimizer is gathered between the files."""
    if run.first:
        save(state["model"], run.folder / "model.pt")
        time.sleep(1.6)
        save(state["optimizer"], run.folder / "optimizer.pt")


def load_two_files(run: Run) -> State | None:
    model, optimizer = run.folder / "model.pt", run.folder / "optimizer.pt"
    if not model.exists() or not optimizer.exists():
        return None
    return {"model": load(model), "optimizer": load(optimizer)}


def save_top_k(run: Run, state: State) -> None:
    """The scores alternate: the three best are not the three newest."""
    if run.first:
        step = step_of(state)
        score = (step // 100 * 7) % 10
        save(state, run.folder / f"model-score={score:02}-step={step}.pt")
        pause()
        for path in sorted(run.folder.glob("model-score=*.pt"), key=lambda path: path.name, reverse=True)[3:]:
            if f"step={step}." not in path.name:
                path.unlink()


def load_top_k(run: Run) -> State | None:
    path = newest(run.folder, r"model-score=\d+-step=(\d+)\.pt")
    return load(path) if path else None


def save_by_rank_and_step(run: Run, state: State) -> None:
    folder = run.folder / f"step-{step_of(state)}"
    folder.mkdir(exist_ok=True)
    save(_of(state, run), folder / f"rank{run.rank}.pt")


def load_by_rank_and_step(run: Run) -> State | None:
    folder = newest(run.folder, r"step-(\d+)")
    return load(folder / f"rank{run.rank}.pt") if folder else None


def save_file_by_rank_and_step(run: Run, state: State) -> None:
    save(_of(state, run), run.folder / f"step{step_of(state)}_rank{run.rank}.pt")
    rotate(run.folder, rf"step(\d+)_rank{run.rank}\.pt", 3)


def load_file_by_rank_and_step(run: Run) -> State | None:
    path = newest(run.folder, rf"step(\d+)_rank{run.rank}\.pt")
    return load(path) if path else None


def save_folder_of_rank(run: Run, state: State) -> None:
    folder = run.folder / f"rank{run.rank}"
    folder.mkdir(exist_ok=True)
    save(_of(state, run), folder / "state.pt")


def load_folder_of_rank(run: Run) -> State | None:
    path = run.folder / f"rank{run.rank}" / "state.pt"
    return load(path) if path.exists() else None


def save_same_name(run: Run, state: State) -> None:
    """Each pod has a directory of its own, so that the script needs no rank in the name."""
    save(_of(state, run), run.folder / "state.pt")


def load_same_name(run: Run) -> State | None:
    path = run.folder / "state.pt"
    return load(path) if path.exists() else None


def _of(state: State, run: Run) -> State:
    return {**state, "rank": run.rank}


def save_in_thread(run: Run, state: State) -> None:
    """A copy is written while training goes on."""
    if run.first:
        if run.writer is not None:
            run.writer.join()
        run.writer = threading.Thread(
            target=save, args=(copy.deepcopy(state), run.folder / f"step-{step_of(state)}.pt")
        )
        run.writer.start()


def save_in_process(run: Run, state: State) -> None:
    """A process of its own writes a copy, and outlives a worker that is killed."""
    if run.first:
        if run.writer is not None:
            run.writer.join()
        context = multiprocessing.get_context("fork")
        path = run.folder / f"step-{step_of(state)}.pt"
        buffer = io.BytesIO()
        torch.save(state, buffer)
        run.writer = context.Process(target=put, args=(path, buffer.getvalue()))
        run.writer.start()


def join_writer(run: Run) -> None:
    if run.writer is not None:
        run.writer.join()


def put_text(path: Path, value: object) -> None:
    """JSON, slowly."""
    put(path, json.dumps(value).encode())


def put_tensors(path: Path, tensors: dict[str, torch.Tensor], about: dict[str, str]) -> None:
    """The format of safetensors, as `safetensors.torch.save_file` writes it: in place. The library is not installed."""
    header: dict[str, object] = {"__metadata__": about}
    data = b""
    for name, tensor in tensors.items():
        raw = tensor.numpy().tobytes()
        header[name] = {"dtype": "F64", "shape": [*tensor.shape], "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    put(path, len(text).to_bytes(8, "little") + text + data)


def get_tensors(path: Path) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    """Read what `put_tensors` wrote; fails if it is not whole, as the library does."""
    raw = path.read_bytes()
    start = 8 + int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8:start])
    about = header.pop("__metadata__")
    ends = max(int(each["data_offsets"][1]) for each in header.values())
    if len(raw) != start + ends:
        raise ValueError(f"{path.name}: {len(raw)} bytes instead of {start + ends}")
    found = {}
    for name, each in header.items():
        first, last = each["data_offsets"]
        found[name] = torch.frombuffer(bytearray(raw[start + first : start + last]), dtype=torch.float64)
    return found, about


def save_safetensors(run: Run, state: State) -> None:
    if run.first:
        tensors = {"w": state["model"]["w"], "v": state["optimizer"]["v"]}
        put_tensors(run.folder / f"model-{step_of(state)}.safetensors", tensors, {"step": str(step_of(state))})
        rotate(run.folder, r"model-(\d+)\.safetensors", 2)


def load_safetensors(run: Run) -> State | None:
    path = newest(run.folder, r"model-(\d+)\.safetensors")
    if path is None:
        return None
    tensors, about = get_tensors(path)
    step = int(about["step"])
    return {"model": {"step": step, "w": tensors["w"]}, "optimizer": {"step": step, "v": tensors["v"]}}


SHARDS = 5


def save_pretrained(folder: Path, state: State) -> None:
    """The files of `PreTrainedModel.save_pretrained` with shards, in its order: config, shards, index."""
    folder.mkdir(parents=True, exist_ok=True)
    put_text(folder / "config.json", {"model_type": "test"})
    put_text(folder / "generation_config.json", {})
    parts = state["model"]["w"].chunk(SHARDS)
    names = [f"model-{number:05}-of-{SHARDS:05}.safetensors" for number in range(1, SHARDS + 1)]
    for number, (name, part) in enumerate(zip(names, parts, strict=True)):
        put_tensors(folder / name, {f"w{number}": part.clone()}, {"format": "pt", "step": str(step_of(state))})
    index = {"metadata": {}, "weight_map": {f"w{number}": name for number, name in enumerate(names)}}
    put_text(folder / "model.safetensors.index.json", index)


def from_pretrained(folder: Path) -> State:
    """The model part: all shards of the index, of one step."""
    index = json.loads((folder / "model.safetensors.index.json").read_text())["weight_map"]
    found = [get_tensors(folder / name) for name in index.values()]
    steps = {int(about["step"]) for _, about in found}
    if len(steps) > 1:
        raise ValueError(f"shards of the steps {sorted(steps)}")
    return {"step": steps.pop(), "w": torch.cat([next(iter(tensors.values())) for tensors, _ in found])}


def save_sharded(run: Run, state: State) -> None:
    """The same folder each time, as scripts do that keep the last model alone."""
    if run.first:
        save_pretrained(run.folder / "last", state)
        save(state["optimizer"], run.folder / "last" / "optimizer.pt")


def load_sharded(run: Run) -> State | None:
    folder = run.folder / "last"
    if not (folder / "optimizer.pt").exists():
        return None
    return {"model": from_pretrained(folder), "optimizer": load(folder / "optimizer.pt")}


def save_sharded_epochs(run: Run, state: State) -> None:
    if run.first:
        folder = run.folder / f"epoch_{step_of(state)}"
        save_pretrained(folder, state)
        save(state["optimizer"], folder / "optimizer.pt")


def load_sharded_epochs(run: Run) -> State | None:
    folder = newest(run.folder, r"epoch_(\d+)")
    return None if folder is None else {"model": from_pretrained(folder), "optimizer": load(folder / "optimizer.pt")}


def save_trainer(run: Run, state: State) -> None:
    """Hugging Face's Trainer with DDP, as `_save_checkpoint` does it: model, optimizer, scheduler, the random state of
    each rank, `trainer_state.json`, then the rotation, which spares the best checkpoint. The library is not installed.
    """
    step = step_of(state)
    folder = run.folder / f"checkpoint-{step}"
    folder.mkdir(exist_ok=True)
    if run.first:
        save_pretrained(folder, state)
        save({"args": 1}, folder / "training_args.bin")
        save(state["optimizer"], folder / "optimizer.pt")
        save({"last_epoch": step}, folder / "scheduler.pt")
    save({"rank": run.rank, "step": step}, folder / f"rng_state_{run.rank}.pth")
    if run.first:
        best = step if step % 300 == 100 else max(100, step - (step - 100) % 300)
        put_text(folder / "trainer_state.json", {"global_step": step, "best": f"checkpoint-{best}"})
        kept = {f"checkpoint-{each}" for each in (step, step - 100, best)}
        for path in run.folder.glob("checkpoint-*"):
            if path.name not in kept:
                shutil.rmtree(path)


def load_trainer(run: Run) -> State | None:
    """As `get_last_checkpoint`; a missing random state is a warning of the library, but not the same training."""
    folder = newest(run.folder, r"checkpoint-(\d+)")
    if folder is None:
        return None
    state = {"model": from_pretrained(folder), "optimizer": load(folder / "optimizer.pt")}
    about = json.loads((folder / "trainer_state.json").read_text())
    if run.first and not (run.folder / about["best"]).exists():
        raise ValueError(f"the best checkpoint {about['best']} is lost")
    return {**state, "rank": load(folder / f"rng_state_{run.rank}.pth")["rank"]}


def save_lightning(run: Run, state: State) -> None:
    """Lightning's ModelCheckpoint with save_top_k=3 and save_last: rank 0 writes the new one in place, removes the
    worst, and writes `last.ckpt`. The library is not installed.
    """
    if run.first:
        step = step_of(state)
        score = (step // 100 * 7) % 10
        saved = [*run.folder.glob("epoch=*.ckpt")]
        save({**state, "kept": [path.name for path in saved]}, run.folder / f"epoch={score}-step={step}.ckpt")
        if len(saved) >= 3:
            min(saved, key=lambda path: path.name).unlink()
        save({**state, "kept": sorted(path.name for path in run.folder.glob("epoch=*.ckpt"))}, run.folder / "last.ckpt")


def load_lightning(run: Run) -> State | None:
    """From `last.ckpt`, whose state names the best ones."""
    path = run.folder / "last.ckpt"
    if not path.exists():
        return None
    state = load(path)
    lost = [name for name in state["kept"] if not (run.folder / name).exists()]
    if len(lost) > 1 and run.first:  # it may have been killed between the removal and the new last one
        raise ValueError(f"best checkpoints are lost: {lost}")
    return dict(state)


def save_accelerate(run: Run, state: State) -> None:
    """Accelerate's `save_state` with automatic names: the main process writes model, optimizer and scheduler, each
    rank its random states. The library is not installed.
    """
    step = step_of(state)
    folder = run.folder / "checkpoints" / f"checkpoint_{step // 100}"
    folder.mkdir(parents=True, exist_ok=True)
    if run.first:
        put_tensors(folder / "model.safetensors", {"w": state["model"]["w"]}, {"step": str(step)})
        save(state["optimizer"], folder / "optimizer.bin")
        save({"last_epoch": step}, folder / "scheduler.bin")
    save({"rank": run.rank}, folder / f"random_states_{run.rank}.pkl")


def load_accelerate(run: Run) -> State | None:
    place = run.folder / "checkpoints"
    folder = newest(place, r"checkpoint_(\d+)") if place.exists() else None
    if folder is None:
        return None
    tensors, about = get_tensors(folder / "model.safetensors")
    rank = load(folder / f"random_states_{run.rank}.pkl")["rank"]
    model = {"step": int(about["step"]), "w": tensors["w"]}
    return {"model": model, "optimizer": load(folder / "optimizer.bin"), "rank": rank}


def _sharded(run: Run, state: State | None) -> dict[str, Any]:
    """A state of which each rank has a part, as FSDP2 has it."""
    mesh = init_device_mesh("cpu", (run.world,))
    zero = torch.zeros(SIZE, dtype=torch.float64)
    w, v = (zero, zero) if state is None else (state["model"]["w"], state["optimizer"]["v"])
    step = 0 if state is None else step_of(state)
    parts = {"w": distribute_tensor(w, mesh, [Shard(0)]), "v": distribute_tensor(v, mesh, [Shard(0)])}
    return {"model": {"w": parts["w"], "step": step}, "optimizer": {"v": parts["v"], "step": step}}


def save_dcp(run: Run, state: State) -> None:
    dcp.save(_sharded(run, state), checkpoint_id=run.folder / f"step-{step_of(state)}")


def save_dcp_in_background(run: Run, state: State) -> None:
    """The next save waits for the one before; the thread needs a group of its own."""
    if run.future is not None:
        run.future.result()
    if run.group is None:
        run.group = dist.new_group(backend="gloo")
    place = run.folder / f"step-{step_of(state)}"
    run.future = dcp.async_save(_sharded(run, state), checkpoint_id=place, process_group=run.group)


def join_future(run: Run) -> None:
    if run.future is not None:
        run.future.result()


def load_dcp(run: Run) -> State | None:
    """The newest with an index: without it torch has not finished."""
    steps = {int(path.name[5:]): path for path in run.folder.glob("step-*") if (path / ".metadata").exists()}
    if not steps:
        return None
    state = _sharded(run, None)
    dcp.load(state, checkpoint_id=steps[max(steps)])
    model, optimizer = state["model"], state["optimizer"]
    return {
        "model": {"step": model["step"], "w": model["w"].full_tensor()},
        "optimizer": {"step": optimizer["step"], "v": optimizer["v"].full_tensor()},
    }


def save_a_b(run: Run, state: State) -> None:
    """Two names in turn; the newest state is the one with the higher step."""
    if run.first:
        save(state, run.folder / ("a.pt" if step_of(state) // 100 % 2 else "b.pt"))


def load_a_b(run: Run) -> State | None:
    """A torn one is why there are two."""
    found = []
    for path in (run.folder / "a.pt", run.folder / "b.pt"):
        with suppress(OSError, RuntimeError, pickle.UnpicklingError, EOFError, ValueError):
            found.append(load(path))
    return max(found, key=step_of, default=None)


def remove_folder(run: Run) -> None:
    """A script that has loaded, and makes its folder of checkpoints anew."""
    shutil.rmtree(run.folder / "work", ignore_errors=True)
    (run.folder / "work").mkdir()


def save_in_folder(run: Run, state: State) -> None:
    if run.first:
        save(state, run.folder / "work" / f"{step_of(state)}.pt")


def load_in_folder(run: Run) -> State | None:
    path = newest(run.folder / "work", r"(\d+)\.pt") if (run.folder / "work").exists() else None
    return load(path) if path else None


def remove_everything(run: Run) -> None:
    """A script that has loaded, and empties the whole directory, with all that starts with a dot."""
    for path in run.folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def note_metrics(run: Run, step: int) -> None:
    """A table that stays open, as csv.writer with flush has it; each rank has one."""
    if run.table is None:
        run.table = (run.folder / "metrics.csv").open("a")
    run.table.write(f"{step},{step / 7}\n")
    run.table.flush()


def note_log(run: Run, step: int) -> None:
    """A line of a log with each step."""
    with (run.folder / "train.log").open("a") as log:
        log.write(f"step {step}\n")


def note_history(run: Run, step: int) -> None:
    """The history is written anew after each tenth step, as Keras-like scripts do it."""
    if run.first and step % 10 == 0:
        path, history = run.folder / "history.json", []
        with suppress(FileNotFoundError, ValueError):  # a kill may have cut it
            history = json.loads(path.read_text())
        path.write_text(json.dumps([*history, step]))


def save_tar(run: Run, state: State) -> None:
    if run.first:
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w") as tar:
            for name in ("model", "optimizer"):
                part = io.BytesIO()
                torch.save(state[name], part)
                about = tarfile.TarInfo(f"{name}.pt")
                about.size = part.tell()
                part.seek(0)
                tar.addfile(about, part)
        put(run.folder / f"checkpoint_{step_of(state)}.tar", buffer.getvalue())


def load_tar(run: Run) -> State | None:
    path = newest(run.folder, r"checkpoint_(\d+)\.tar")
    if path is None:
        return None
    with tarfile.open(path) as tar:
        return {name: _member(tar, f"{name}.pt") for name in ("model", "optimizer")}


def _member(tar: tarfile.TarFile, name: str) -> Any:
    file = tar.extractfile(name)
    assert file is not None
    return torch.load(io.BytesIO(file.read()), weights_only=True)


def save_npz(run: Run, state: State) -> None:
    """Arrays and a JSON file with the step, which the script reads first."""
    if run.first:
        buffer = io.BytesIO()
        np.savez(buffer, w=state["model"]["w"].numpy(), v=state["optimizer"]["v"].numpy(), step=step_of(state))
        put(run.folder / "weights.npz", buffer.getvalue())
        pause()
        put_text(run.folder / "state.json", {"step": step_of(state)})


def load_npz(run: Run) -> State | None:
    path = run.folder / "state.json"
    if not path.exists():
        return None
    step = json.loads(path.read_text())["step"]
    with np.load(run.folder / "weights.npz") as arrays:
        w, v = torch.from_numpy(arrays["w"].copy()), torch.from_numpy(arrays["v"].copy())
        return {"model": {"step": int(arrays["step"]), "w": w}, "optimizer": {"step": step, "v": v}}


def save_marked(run: Run, state: State) -> None:
    """The last file says that the folder is whole."""
    if run.first:
        folder = run.folder / f"ckpt_{step_of(state)}"
        folder.mkdir(exist_ok=True)
        save(state["model"], folder / "model.pt")
        pause()
        save(state["optimizer"], folder / "optimizer.pt")
        pause()
        (folder / ".complete").touch()


def load_marked(run: Run) -> State | None:
    found = {int(path.name[5:]): path for path in run.folder.glob("ckpt_*") if (path / ".complete").exists()}
    if not found:
        return None
    folder = found[max(found)]
    return {"model": load(folder / "model.pt"), "optimizer": load(folder / "optimizer.pt")}


def save_delta(run: Run, state: State) -> None:
    """A base at the first save and at each fifth, and else the difference to the save before."""
    if run.first:
        step, flat = step_of(state), torch.cat([state["model"]["w"], state["optimizer"]["v"]])
        base = newest(run.folder, r"base-(\d+)\.pt")
        if base is None or step % 500 == 0:
            save({"step": step, "flat": flat}, run.folder / f"base-{step}.pt")
        else:
            before, at = _replayed(run.folder)
            save(
                {"step": step, "after": at, "bits": flat.view(torch.int64) - before.view(torch.int64)},
                run.folder / f"delta-{step}.pt",
            )


def _replayed(folder: Path) -> tuple[torch.Tensor, int]:
    """The newest state: the newest base with all its deltas."""
    base = newest(folder, r"base-(\d+)\.pt")
    assert base is not None
    found = load(base)
    flat, step = found["flat"], found["step"]
    deltas = {int(path.stem[6:]): path for path in folder.glob("delta-*.pt")}
    for at in sorted(at for at in deltas if at > step):
        delta = load(deltas[at])
        if delta["after"] != step:
            raise ValueError(f"the delta of step {at} follows {delta['after']}, not {step}")
        flat, step = (flat.view(torch.int64) + delta["bits"]).view(torch.float64), at
    return flat, step


def load_delta(run: Run) -> State | None:
    if newest(run.folder, r"base-(\d+)\.pt") is None:
        return None
    flat, step = _replayed(run.folder)
    return {"model": {"step": step, "w": flat[:SIZE].clone()}, "optimizer": {"step": step, "v": flat[SIZE:].clone()}}


STYLES: dict[str, Style] = {
    "in place": Style(save_in_place, load_latest, often=True),
    "rename": Style(save_renamed, load_latest, often=True),
    "numbered, rename": Style(save_numbered_renamed, load_numbered),
    "numbered": Style(save_numbered, load_numbered, often=True),
    "a thread": Style(save_in_thread, load_numbered, finish=join_writer, late=1),
    "a process": Style(save_in_process, load_numbered, finish=join_writer, late=1),
    "a or b": Style(save_a_b, load_a_b),
    "tar": Style(save_tar, load_tar),
    "safetensors": Style(save_safetensors, load_safetensors),
    "removed folder": Style(save_in_folder, load_in_folder, loaded=remove_folder),
    "emptied directory": Style(save_renamed, load_latest, loaded=remove_everything, forgets=True),
    "pointer file": Style(save_pointer, load_pointer, "several files", often=True),
    "relative link": Style(save_linked, load_linked, "several files"),
    "absolute link": Style(save_linked_absolute, load_linked, "several files"),
    # The first last.pt without a best.pt is uncertain until it is written again, and may be gone by then.
    "best and last": Style(save_best_and_last, load_best_and_last, "several files", late=1),
    "top k": Style(save_top_k, load_top_k, "several files"),
    "two files": Style(save_two_files, load_two_files, "several files"),
    "two files, slowly": Style(save_two_files_slowly, load_two_files, "several files", seconds=0.04),
    "npz and json": Style(save_npz, load_npz, "several files"),
    "marker": Style(save_marked, load_marked, "several files", seconds=0.04),
    "deltas": Style(save_delta, load_delta, "several files"),
    "beside a table": Style(
        save_renamed, load_latest, "several files", after_step=note_metrics, keeps=("metrics.csv",)
    ),
    "beside a log": Style(save_numbered, load_numbered, "several files", after_step=note_log, keeps=("train.log",)),
    "beside a history": Style(
        save_numbered_renamed, load_numbered, "several files", after_step=note_history, keeps=("history.json",)
    ),
    "ranks, folder of the step": Style(
        save_by_rank_and_step, load_by_rank_and_step, "each rank", own=True, seconds=0.04, often=True
    ),
    "ranks, step in the name": Style(save_file_by_rank_and_step, load_file_by_rank_and_step, "each rank", own=True),
    "ranks, folder of the rank": Style(save_folder_of_rank, load_folder_of_rank, "each rank", own=True),
    "ranks, one name": Style(save_same_name, load_same_name, "each rank", own=True),
    "three ranks": Style(save_by_rank_and_step, load_by_rank_and_step, "each rank", own=True, world=3, seconds=0.04),
    "DCP": Style(save_dcp, load_dcp, "each rank"),
    "DCP in the background": Style(save_dcp_in_background, load_dcp, "each rank", finish=join_future, late=1),
    "save_pretrained": Style(save_sharded, load_sharded, "libraries", seconds=0.04),
    "save_pretrained, folders": Style(save_sharded_epochs, load_sharded_epochs, "libraries", seconds=0.04),
    "Trainer": Style(save_trainer, load_trainer, "libraries", own=True, seconds=0.04),
    "Lightning": Style(save_lightning, load_lightning, "libraries"),
    "Accelerate": Style(save_accelerate, load_accelerate, "libraries", own=True, seconds=0.04),
}
