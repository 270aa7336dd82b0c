"""The training that faults are tried on goes on from its checkpoint, and its losses are those of an undisturbed run."""

import itertools
import os
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from benchmarks.recovery.lines import Journal, Loss
from benchmarks.recovery.measure import replay
from benchmarks.recovery.train import losses, model, part, trained
from tests.ports import free_port
from tests.waiting import until

HERE = Path(__file__).parents[2] / "benchmarks" / "recovery"
pytestmark = pytest.mark.torch


def train(world: int, steps: int, checkpoints: str) -> Journal:
    """Run to a step; torchrun is left out, as its part is not what is tried here."""
    port = free_port()
    env = {
        **os.environ,
        "TRAIN_STEPS": str(steps),
        "TRAIN_STEP_SECONDS": "0",
        "TRAIN_CHECKPOINT_STEPS": "4",
        "TRAIN_CHECKPOINTS": checkpoints,
        "OMP_NUM_THREADS": "1",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "WORLD_SIZE": str(world),
    }
    command = [sys.executable, str(HERE / "train.py")]
    ranks = [
        subprocess.Popen(command, env={**env, "RANK": str(rank)}, stdout=subprocess.PIPE, text=True)
        for rank in range(world)
    ]
    journal = Journal("")
    for process in ranks:
        text, _ = process.communicate(timeout=100)
        assert process.returncode == 0
        for line in text.splitlines():
            journal.add(line)
    return journal


def test_it_goes_on_from_the_checkpoint_with_fewer_ranks_and_the_losses_stay_those_of_one_process(
    tmp_path: Path,
) -> None:
    first = train(2, 6, str(tmp_path))
    (tmp_path / "6").unlink()  # killed before the last step was saved
    second = train(1, 10, str(tmp_path))
    assert [group.from_step for journal in (first, second) for group in journal.groups.values()] == [0, 4]
    assert first.problems == []
    assert sorted(first.losses) == [1, 2, 3, 4, 5, 6]
    assert sorted(second.losses) == [5, 6, 7, 8, 9, 10]
    assert first.wrong(losses()) == second.wrong(losses()) == []
    assert len(set(itertools.islice(losses(), 10))) == 10


def told(shares: Sequence[str], gradients: Sequence[str]) -> dict[int, Loss]:
    """What a job says whose steps have these shares in the loss, and those in the gradients."""
    net, found = model(), {}
    for step, (lost, summed) in enumerate(zip(shares, gradients, strict=True), 1):
        found[step] = Loss(part(net, step, lost).item(), lost)
        net = trained(net, step, summed)
    return found


@pytest.mark.parametrize(
    ("shares", "gradients", "right"),
    [
        pytest.param(["111"] * 6, ["111"] * 6, True, id="whole"),
        pytest.param(["111", *["101"] * 5], ["111", *["101"] * 5], True, id="lost within the gradients"),
        pytest.param(["111", *["101"] * 5], ["111", "111", *["101"] * 4], True, id="lost behind the gradients"),
        pytest.param(["111", "101", "11", "11"], ["111", "111", "11", "11"], True, id="a smaller round later"),
        pytest.param(["111"] * 6, ["111", "101", *["111"] * 4], False, id="a share is missing unsaid"),
    ],
)
def test_the_losses_of_a_job_that_has_lost_shares_are_computed(
    shares: list[str], gradients: list[str], right: bool
) -> None:
    journal = Journal("")
    journal.losses = told(shares, gradients)
    assert (journal.wrong(replay(journal.losses)) == []) is right


def _answers(port: str) -> bool:
    try:
        socket.create_connection(("127.0.0.1", int(port)), 1).close()
    except OSError:
        return False
    return True


@pytest.fixture
def store(tmp_path: Path) -> Iterator[str]:
    ports = [str(free_port()), str(free_port())]
    process = subprocess.Popen([sys.executable, str(HERE / "store.py"), *ports, str(tmp_path / "kept")])
    try:
        until(lambda: all(map(_answers, ports)))
        yield ",".join(ports)
    finally:
        process.kill()
        process.wait()


def test_the_store_answers_the_newest_checkpoint_and_all_lines(store: str) -> None:
    checkpoints, lines = store.split(",")
    address = f"http://127.0.0.1:{checkpoints}"

    def put(path: str, content: bytes) -> None:
        urllib.request.urlopen(urllib.request.Request(f"{address}{path}", content, method="PUT"), timeout=10).close()

    def get(path: str) -> bytes:
        with urllib.request.urlopen(f"{address}{path}", timeout=10) as reply:
            return bytes(reply.read())

    with pytest.raises(urllib.error.HTTPError, match="404") as missing:
        get("/x")
    missing.value.close()
    for step in (9, 10, 8, 7, 6):
        put(f"/x/{step}", str(step).encode())
    assert get("/x") == b"10"
    with pytest.raises(urllib.error.HTTPError, match="400") as refused:
        put("/../etc/1", b"")
    refused.value.close()
    told = get("/lines?from=0").decode()
    journal = Journal("x")
    for line in told.splitlines():
        journal.add(line)
    assert journal.saved == {0, 6, 7, 8, 9, 10}
    with socket.create_connection(("127.0.0.1", int(lines)), 10) as sink:
        sink.sendall(b"one\ntwo\nhal")
    until(lambda: get(f"/lines?from={len(told)}") == b"one\ntwo\n")
    assert get(f"/lines?from={len(told) + 4}") == b"two\n"
