"""The thread that copies saves to the durable directory: what it copies when, and storage that hangs or refuses."""

import os
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from pytorchjob_agent.contract.checkpoint_rules import DurableRules
from pytorchjob_agent.contract.messages import RoundId
from pytorchjob_agent.exchange.file_list import HeldFile
from pytorchjob_agent.exchange.wire import UNLIMITED
from pytorchjob_agent.saves import drain_choice, durable
from pytorchjob_agent.saves.bounded import Progress, while_it_moves
from pytorchjob_agent.saves.drain import Drain, Patience, RoundOfDrains
from pytorchjob_agent.saves.drain_choice import DrainView
from pytorchjob_agent.saves.durable import DurableSaves
from pytorchjob_agent.saves.durable_tier import DurableTier
from pytorchjob_agent.saves.held import HeldSaves
from pytorchjob_agent.saves.held_saves import Choice, HeldSave, SaveId
from pytorchjob_agent.saves.manifest import Manifest
from pytorchjob_agent.saves.recognition import Local
from pytorchjob_agent.saves.taking import Writer
from pytorchjob_agent.saves.watcher import RoundOfSaves, SaveWatcher
from pytorchjob_agent.system.background import Call
from tests.agent.saves.keys import KEYS
from tests.agent.saves.test_copies import checksum_of
from tests.waiting import again, until

PATIENT, IMPATIENT = Patience(), Patience(1.5, 5.0, 1.5)
"""The second is for storage that is given up. A thread that gets no CPU for this time is given up too."""
ONE, TWO = RoundId(1, 1), RoundId(1, 2)
OWN = HeldSave(SaveId(TWO, 0, 5), 1)
PART = HeldSave(SaveId(TWO, 1, 5), 1, 2, "step-5")
BASE, ADOPTED = Choice(ONE, 0, 3), Choice(RoundId(0, 1, 7), 0, 3)
OWN_CHOICE, PARTS = Choice(TWO, 0, 5), Choice(TWO, 0, 5, 2, "step-5")


def view(rank: int = 0, newest: HeldSave | None = None, base: Choice | None = None, **more: object) -> DrainView:
    values: dict[str, object] = {"announced": None, "due": True, "final": False, **more}
    return DrainView(TWO, rank, 2, newest, base, **values)  # type: ignore[arg-type]


OTHER = HeldSave(SaveId(TWO, 1, 5), 1)


@pytest.mark.parametrize(
    ("seen", "copied"),
    [
        pytest.param(view(), None, id="nothing is held"),
        pytest.param(view(0, OWN, BASE), OWN_CHOICE, id="its newest save"),
        pytest.param(view(0, OWN, BASE, due=False), None, id="the interval is not over"),
        pytest.param(view(0, None, BASE), BASE, id="the save with which the round started"),
        pytest.param(view(0, None, ADOPTED), None, id="an earlier job's save is there already"),
        pytest.param(view(1, PART), None, id="a part waits for rank 0"),
        pytest.param(view(1, PART, announced=PARTS, due=False), PARTS, id="a part that rank 0 has announced"),
        pytest.param(view(1, OTHER, announced=OWN_CHOICE), OWN_CHOICE, id="rank 0 saves, so another rank's is a log"),
        pytest.param(view(1, OTHER), Choice(TWO, 1, 5), id="rank 0 has announced nothing"),
        pytest.param(view(1, OTHER, announced=BASE), Choice(TWO, 1, 5), id="rank 0 has none of this round"),
        pytest.param(view(1, None, announced=BASE), BASE, id="a part of the save with which the round started"),
        pytest.param(view(0, OWN, due=False, final=True), OWN_CHOICE, id="the last save is always due"),
        pytest.param(view(1, PART, final=True), PARTS, id="the last part waits for no other part"),
    ],
)
def test_which_save_a_member_copies(seen: DrainView, copied: Choice | None) -> None:
    assert drain_choice.choose(seen) == copied


def test_each_part_has_a_member_that_copies_it() -> None:
    four = Choice(ONE, 0, 1, 4, "step-5")
    assert [drain_choice.owners(four, rank, 3) for rank in range(3)] == [(0, 3), (1,), (2,)]
    assert drain_choice.owners(BASE, 1, 2) == ()


class Storage(DurableSaves):
    """A durable directory that hangs or refuses at will."""

    def __init__(self, root: Path, job: str = "job") -> None:
        super().__init__(root, job)
        self.answers = threading.Event()
        self.answers.set()
        self.error = ""

    def enter(self) -> int:
        self.answers.wait()
        if self.error:
            raise OSError(self.error)
        return super().enter()

    def numbers(self) -> list[int]:
        return [save.id.number for save in durable.offered(self.stored())]


class Agent:
    """An agent's memory, and its thread."""

    def __init__(self, folder: Path, interval: float = 3600, limit: int = 10**8, patience: Patience = PATIENT) -> None:
        (folder / "memory").mkdir()
        self.held, self.storage = HeldSaves(folder / "memory", "job", limit), Storage(folder / "durable")
        self.drain = Drain(self.held, self.storage, interval, UNLIMITED, patience)
        self.announced: list[str] = []

    def save(self, number: int, size: int = 10) -> Manifest:
        folder, content = self.held.new_folder(), os.urandom(size)
        (folder / "0").write_bytes(content)
        file = HeldFile("a.pt", size, os.stat(folder / "0").st_mtime_ns, checksum_of(content))
        manifest = Manifest("job", SaveId(ONE, 0, number), (file,))
        self.held.keep(manifest, folder)
        return manifest

    def begin(self, base: Choice | None = None) -> None:
        self.drain.begin(RoundOfDrains(ONE, 0, 2, base, self.announced.append, lambda: ""))

    def ends(self) -> None:
        """Wait for the last copy."""
        until(self.drain.finish)


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Agent]:
    made = Agent(tmp_path)
    yield made
    made.storage.answers.set()
    made.drain.close()


@pytest.fixture
def impatient(tmp_path: Path) -> Iterator[Agent]:
    made = Agent(tmp_path, patience=IMPATIENT)
    yield made
    made.storage.answers.set()
    made.drain.close()


def test_the_first_save_becomes_durable_at_once_and_the_last_at_the_end(agent: Agent) -> None:
    agent.save(1)
    agent.begin()
    until(lambda: agent.storage.numbers() == [1])
    assert agent.announced == ["1.1/0/1"]
    agent.save(2)
    agent.save(3)
    time.sleep(1.5)  # longer than the thread sleeps
    assert agent.storage.numbers() == [1], "the interval is not over"
    agent.ends()
    assert agent.storage.numbers() == [3, 1]


def test_every_interval_the_newest_save_becomes_durable(tmp_path: Path) -> None:
    agent = Agent(tmp_path, interval=0.1)
    agent.begin()
    for number in (1, 2, 3):
        agent.save(number)
        until(lambda number=number: agent.storage.numbers()[:1] == [number])  # type: ignore[misc]
    until(lambda: agent.storage.numbers() == [3, 2])
    agent.drain.close()


def test_storage_that_hangs_is_named_and_holds_up_nothing(impatient: Agent) -> None:
    impatient.storage.answers.clear()
    impatient.save(1)
    impatient.begin()
    problem = until(lambda: impatient.drain.problem)
    assert "DurableDirectorySilent" in problem
    impatient.ends()
    impatient.begin()
    impatient.storage.answers.set()
    until(lambda: impatient.storage.numbers() == [1])
    until(lambda: not impatient.drain.problem)


def test_storage_that_refuses_is_named_and_the_end_says_what_is_lost(
    impatient: Agent, capsys: pytest.CaptureFixture[str]
) -> None:
    impatient.storage.error = "no space left"
    impatient.save(1)
    impatient.begin()
    assert "no space left" in until(lambda: impatient.drain.problem)
    impatient.ends()
    assert "the last checkpoint is not in" in capsys.readouterr().err


def test_a_pod_that_leaves_waits_for_its_newest_save_but_not_for_long(agent: Agent) -> None:
    agent.save(1)
    agent.begin()
    agent.drain.leave(60)
    assert agent.storage.numbers() == [1]
    agent.storage.answers.clear()
    agent.save(2)
    agent.begin()
    agent.drain.leave(0.5)  # the storage hangs: only the time ends it
    assert not agent.storage.answers.is_set()


def test_a_save_stays_held_while_it_is_copied(agent: Agent) -> None:
    first = agent.save(1)
    with agent.held.pinned(first.id):
        for number in (2, 3, 4):
            agent.save(number)
        assert [save.id.number for save in agent.held.list()] == [4, 3, 1]
    assert [save.id.number for save in agent.held.list()] == [4, 3]


def test_a_save_that_is_copied_gives_way_to_the_scripts_next_one(agent: Agent) -> None:
    first = agent.save(1, 10_000)
    with agent.held.pinned(first.id):
        agent.save(2, 10_000)
        agent.held.limit = 15_000
        agent.held.make_room(0)
        assert agent.held.get(first.id) is None


def test_a_full_memory_leaves_the_saves_to_the_durable_directory(tmp_path: Path) -> None:
    agent = Agent(tmp_path, interval=0.1, limit=10_000)
    watcher = SaveWatcher(agent.held)
    watcher.on_full = lambda manifest: setattr(agent.drain, "loose", manifest)
    writer = Writer("job", ONE, 0, 2, 2)
    watcher.begin(RoundOfSaves(writer, Local(0, 1, 2), KEYS, 1, list), [os.getpid()], [])
    agent.begin()
    for content in (b"x" * 20_000, b"y" * 20_000):
        (agent.held.root / "new.tmp").write_bytes(content)
        os.replace(agent.held.root / "new.tmp", agent.held.root / "latest.pt")
        until(lambda content=content: content in contents(agent.storage))  # type: ignore[misc]
    assert "CheckpointMemoryFull" in watcher.problem
    assert agent.held.list() == ()
    watcher.close()
    agent.drain.close()


def contents(storage: Storage) -> list[bytes]:
    return [stored.file(0).read_bytes() for stored in storage.stored()]


def test_a_script_that_replaces_its_file_meanwhile_is_told_so(agent: Agent) -> None:
    (agent.held.root / "latest.pt").write_bytes(b"newer")
    agent.drain.loose = Manifest("job", SaveId(ONE, 0, 1), (HeldFile("latest.pt", 5, 7, "0" * 64),))
    loose = agent.drain.loose
    agent.begin()
    agent.drain.loose = loose
    assert "the script replaces its saves before they are copied" in until(lambda: agent.drain.problem)
    assert agent.storage.numbers() == []


def test_a_request_to_join_does_not_wait_for_hanging_storage(tmp_path: Path) -> None:
    agent = Agent(tmp_path)
    agent.save(1)
    second = agent.save(2)
    agent.storage.write(second, lambda place, offset: agent.held.read(second, place, offset, 10), lambda _: None)
    tier = DurableTier(agent.held, DurableRules(str(agent.storage.root)), "job", UNLIMITED)
    assert [save.id.number for save in tier.offered()] == [2]
    assert tier.problem == ""
    (agent.storage.root / "job-1" / "1.1_9_9").mkdir()
    os.mkfifo(agent.storage.root / "job-1" / "1.1_9_9" / "manifest.json")  # who opens it waits for ever
    assert tier.offered() == ()
    assert "DurableDirectoryUnusable: its checkpoints are not found" in tier.problem
    assert tier.offered() == ()
    tier.drain.close()
    agent.drain.close()


def test_a_read_that_stops_is_given_up_and_a_slow_one_is_not() -> None:
    def slow(pause: float, progress: Progress) -> str:
        for _ in range(5):
            time.sleep(pause)
            progress.step(1)
        return "all"

    assert again(lambda number: while_it_moves(partial(slow, 0.3 * 4**number), 4**number, lambda: True)) == "all"
    with pytest.raises(TimeoutError, match="has not answered"):
        while_it_moves(lambda _: time.sleep(5), 0.5, lambda: True)
    with pytest.raises(TimeoutError):
        while_it_moves(lambda _: time.sleep(5), 60, lambda: False)


def test_what_a_call_raises_reaches_the_caller() -> None:
    with pytest.raises(ZeroDivisionError):
        Call(lambda: 1 // 0, "a division").result(60)
