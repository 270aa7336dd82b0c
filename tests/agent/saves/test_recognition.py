"""When a save counts as complete: every simulated save is cut after each operation, and scanned at any moment."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import combinations

import pytest

from pytorchjob_agent.saves import renames
from pytorchjob_agent.saves.recognition import (
    FOLDER_REST_SECONDS,
    LONG_OPEN_SECONDS,
    REST_SECONDS,
    RESTLESS_CHANGES,
    RESTLESS_SECONDS,
    Local,
    Recognition,
    Scan,
    SeenFile,
)
from pytorchjob_agent.saves.renames import Renamed, RenameEvent, Renames

PIECES = 3
FOLDERS = [""]
"""All folders, each watched under its place here."""
Files = tuple[SeenFile, ...]


class Disk:
    """A directory that a script writes to, one operation after the other; each state may be the last."""

    def __init__(self) -> None:
        self.files: dict[str, SeenFile] = {}
        self.states: list[tuple[Files, frozenset[str]]] = []
        """After each operation: the files, and the names of units that are whole."""
        self.events: list[list[RenameEvent]] = []
        """The events of the operation that led to each state."""
        self.whole: frozenset[str] = frozenset()
        self.quiet: list[dict[str, int]] = []
        """The directory between two saves: paths, and the times of change."""
        self._inode = self._time = 0

    def create(self, path: str) -> None:
        """Open for writing: an existing file keeps its inode and loses its content."""
        known = self.files.get(path)
        self._inode += known is None
        self._put(path, SeenFile(path, 0, 0, known.inode if known else self._inode, writing=True))

    def append(self, path: str) -> None:
        file = self.files[path]
        self._put(path, SeenFile(path, file.size + 1, 0, file.inode, writing=True))

    def close(self, path: str) -> None:
        self._put(path, self.files[path], writing=False)
        self.events[-1] = [event(renames.CLOSED_AFTER_WRITING, path)]

    def rename(self, path: str, new: str) -> None:
        file = self.files.pop(path)
        self._put(new, SeenFile(new, file.size, file.mtime_ns, file.inode, file.writing), changed=False)
        self.events[-1] = [event(renames.MOVED_FROM, path), event(renames.MOVED_TO, new)]

    def move(self, folder: str, new: str) -> None:
        """Rename a folder, in one step."""
        self.files = {
            path.replace(folder, new, 1): replace(file, path=path.replace(folder, new, 1))
            for path, file in self.files.items()
        }
        self.states.append((tuple(self.files.values()), self.whole))
        bits = (renames.MOVED_FROM, folder), (renames.MOVED_TO, new)
        self.events.append([event(bit, path, renames.FOLDER) for bit, path in bits])

    def remove(self, path: str) -> None:
        del self.files[path]
        self.states.append((tuple(self.files.values()), self.whole))
        self.events.append([])

    def complete(self, *units: str) -> None:
        """What is whole from here on, also in the state that the last operation led to."""
        self.whole = frozenset(units)
        self.states[-1] = (self.states[-1][0], self.whole)

    def rest(self) -> None:
        """A save of the script is over."""
        self.quiet.append(changes(self.files.values()))

    def _put(self, path: str, file: SeenFile, *, writing: bool | None = None, changed: bool = True) -> None:
        self._time += 1
        mtime = self._time if changed and writing is None else file.mtime_ns
        writing = file.writing if writing is None else writing
        self.files[path] = SeenFile(path, file.size, mtime, file.inode, writing)
        self.states.append((tuple(self.files.values()), self.whole))
        self.events.append([])


def event(bits: int, path: str, more: int = 0) -> RenameEvent:
    folder, _, name = path.rpartition("/")
    FOLDERS.extend([folder] if folder not in FOLDERS else [])
    return RenameEvent(FOLDERS.index(folder), bits | more, 1, name)


def changes(files: Iterable[SeenFile]) -> dict[str, int]:
    return {file.path: file.mtime_ns for file in files}


def write(disk: Disk, path: str) -> None:
    disk.create(path)
    for _ in range(PIECES):
        disk.append(path)
    disk.close(path)


def in_place(disk: Disk) -> None:
    for _ in range(2):
        disk.create("latest.pt")
        disk.complete()
        for _ in range(PIECES):
            disk.append("latest.pt")
        disk.complete("latest.pt")  # all bytes are there; whether it is closed makes no difference
        disk.close("latest.pt")


def renamed(disk: Disk) -> None:
    for _ in range(2):
        write(disk, "latest.pt.tmp")
        disk.rename("latest.pt.tmp", "latest.pt")
        disk.complete("latest.pt")


def moved_one_by_one(disk: Disk) -> None:
    write(disk, "step-5/a.pt.tmp")
    disk.rename("step-5/a.pt.tmp", "step-5/a.pt")
    write(disk, "step-5/b.pt.tmp")
    disk.rename("step-5/b.pt.tmp", "step-5/b.pt")
    disk.complete("step-5")


def dcp(disk: Disk) -> None:
    write(disk, "step-5/__0_0.distcp")
    write(disk, "step-5/.metadata.tmp")
    disk.rename("step-5/.metadata.tmp", "step-5/.metadata")
    disk.complete("step-5")


def hugging_face(disk: Disk) -> None:
    write(disk, "checkpoint-5/model.safetensors")
    write(disk, "checkpoint-5/optimizer.pt")
    write(disk, "checkpoint-5/trainer_state.json")
    disk.complete("checkpoint-5")


def hugging_face_in_shards(disk: Disk) -> None:
    for part in ("model", "optimizer"):
        write(disk, f"checkpoint-5/{part}/__0_0.distcp")
        write(disk, f"checkpoint-5/{part}/.metadata")
    write(disk, "checkpoint-5/scheduler.pt")
    write(disk, "checkpoint-5/trainer_state.json")
    disk.complete("checkpoint-5")


def write_over(disk: Disk, path: str) -> None:
    """Write a file of a whole `step-5` in place once more."""
    disk.create(path)
    disk.complete()
    for _ in range(PIECES):
        disk.append(path)
    disk.complete("step-5")
    disk.close(path)


def a_folder_renamed(disk: Disk) -> None:
    write(disk, "tmp-step-5/a.pt")
    write(disk, "tmp-step-5/b.pt")
    disk.move("tmp-step-5", "step-5")
    disk.complete("step-5")
    write_over(disk, "step-5/a.pt")


def renamed_while_open(disk: Disk) -> None:
    disk.create("latest.pt.tmp")
    disk.append("latest.pt.tmp")
    disk.rename("latest.pt.tmp", "latest.pt")
    for _ in range(PIECES):
        disk.append("latest.pt")
    disk.complete("latest.pt")
    disk.close("latest.pt")


def rotated(disk: Disk) -> None:
    write(disk, "latest.pt.tmp")
    disk.rename("latest.pt.tmp", "latest.pt")
    disk.complete("latest.pt")
    write(disk, "latest.pt.tmp")
    disk.rename("latest.pt", "previous.pt")
    disk.complete("previous.pt")
    disk.rename("latest.pt.tmp", "latest.pt")
    disk.complete("latest.pt", "previous.pt")


def dcp_twice(disk: Disk) -> None:
    """The second save goes to the same folder, where the index of the first one still is."""
    dcp(disk)
    write_over(disk, "step-5/__0_0.distcp")


def marked(disk: Disk) -> None:
    write(disk, ".step-5.new/__1_0.distcp")
    write(disk, ".step-5.new/__1_1.whole")
    disk.move(".step-5.new", "step-5")
    disk.complete("step-5")


WAYS = {
    "in place": in_place,
    "renamed": renamed,
    "files of a folder renamed": moved_one_by_one,
    "renamed while it is open": renamed_while_open,
    "rotated": rotated,
    "a folder renamed, then written to": a_folder_renamed,
    "DCP": dcp,
    "DCP twice in one folder": dcp_twice,
    "Hugging Face": hugging_face,
    "Hugging Face in shards": hugging_face_in_shards,
    "a folder with a marker": marked,
}


class Observer:
    """Scans a disk at moments of its life, with the kernel's events or without them."""

    def __init__(self, disk: Disk, *, events: bool) -> None:
        self._disk, self._events, self._next = disk, events, 0
        self._renames = Renames()
        for watch, folder in enumerate(FOLDERS):
            self._renames.add(watch, folder)

    def scan(self, moment: int, at: float) -> Scan:
        """The directory after an operation."""
        self._follow(moment)
        return Scan(self._disk.states[moment][0], at, renamed=self._taken())

    def killed(self, moment: int, at: float, *, alive: bool = False) -> Scan:
        """The same after a kill, by which the kernel has closed all files."""
        files = self._disk.states[moment][0]
        self._follow(moment)
        self._renames.follow(event(renames.CLOSED_AFTER_WRITING, file.path) for file in files if file.writing)
        return Scan(tuple(replace(file, writing=False) for file in files), at, alive, self._taken())

    def _follow(self, moment: int) -> None:
        for events in self._disk.events[self._next : moment + 1]:
            self._renames.follow(events)
        self._next = moment + 1

    def _taken(self) -> Renamed:
        return self._renames.take() if self._events else Renamed()


def life(way: str) -> Disk:
    disk = Disk()
    WAYS[way](disk)
    return disk


def moments(count: int) -> Iterator[tuple[int, ...]]:
    """After which operations the directory is scanned: any two, or all."""
    yield tuple(range(count))
    yield from combinations(range(count), 2)


@pytest.mark.parametrize("events", [True, False], ids=["with events", "scans alone"])
@pytest.mark.parametrize("way", WAYS)
def test_a_save_that_is_cut_anywhere_is_never_complete(way: str, events: bool) -> None:
    disk = life(way)
    for cut in range(1, len(disk.states) + 1):
        whole = disk.states[cut - 1][1]
        for scans in moments(cut):
            recognition, observer, at = Recognition(), Observer(disk, events=events), 0.0
            for moment in scans:
                at += REST_SECONDS / 3
                units = recognition.follow(observer.scan(moment, at)).units
                assert set(units) <= disk.states[moment][1], (cut, scans)
            for _ in range(4):  # the workers are dead, and the directory rests
                at += FOLDER_REST_SECONDS
                units = recognition.follow(observer.killed(cut - 1, at)).units
                assert set(units) <= whole, (cut, scans)
            assert set(recognition.end(observer.killed(cut - 1, at), clean=False).units) <= whole
            later = observer.killed(cut - 1, at + 60, alive=True)
            assert set(recognition.follow(later).units) <= whole, "nor in the next round"


@pytest.mark.parametrize(
    ("way", "complete"),
    [
        ("renamed", {"latest.pt"}),
        ("rotated", {"latest.pt", "previous.pt"}),
        ("DCP", {"step-5"}),
        ("in place", set()),
        ("renamed while it is open", set()),
        ("a folder renamed, then written to", set()),
        ("DCP twice in one folder", set()),
        ("Hugging Face", set()),
    ],
)
def test_what_is_complete_as_soon_as_the_workers_die(way: str, complete: set[str]) -> None:
    """The only scan before is that of the empty directory: the events of the kernel show what was renamed."""
    disk = life(way)
    recognition, observer = Recognition(), Observer(disk, events=True)
    recognition.follow(Scan((), 0.0))
    found = recognition.end(observer.killed(len(disk.states) - 1, 0.1), clean=False)
    assert set(found.units) == complete


@pytest.mark.parametrize("way", [way for way in WAYS if way != "a folder with a marker"])
def test_a_save_that_rests_is_complete(way: str) -> None:
    files, whole = life(way).states[-1]
    recognition = Recognition()
    recognition.follow(Scan(files, 0.0))
    assert recognition.follow(Scan(files, REST_SECONDS / 2)).busy
    assert set(recognition.follow(Scan(files, FOLDER_REST_SECONDS)).units) == whole


def test_a_rename_is_complete_at_once() -> None:
    disk = Disk()
    renamed(disk)
    before, after = disk.states[-2][0], disk.states[-1][0]
    recognition = Recognition()
    recognition.follow(Scan(before, 0.0))
    assert set(recognition.follow(Scan(after, 0.1)).units) == {"latest.pt"}


def test_a_renamed_folder_is_complete_at_once() -> None:
    recognition = Recognition()
    recognition.follow(Scan((SeenFile("step-5.tmp/a.pt", 5, 1, 7), SeenFile("step-5.tmp/b.pt", 5, 1, 8)), 0.0))
    after = (SeenFile("step-5/a.pt", 5, 1, 7), SeenFile("step-5/b.pt", 5, 1, 8))
    assert set(recognition.follow(Scan(after, 0.1)).units) == {"step-5"}


@pytest.mark.parametrize(
    ("names", "complete"),
    [
        pytest.param(["__1_0.distcp", "__1_1.whole"], True, id="the part of a rank"),
        pytest.param(["__1_0.distcp", "__1_1.distcp", "__1_2.whole"], True, id="a rank with two files"),
        pytest.param(["__2_0.whole"], True, id="a rank without data"),
        pytest.param(
            ["__0_0.distcp", "__0_1.whole", "__10_0.distcp", "__10_1.whole", ".metadata"], True, id="all ranks"
        ),
        pytest.param(["__1_1.whole"], False, id="the file is not there"),
        pytest.param(["__1_0.distcp", "__1_2.whole"], False, id="the second file is not there"),
        pytest.param(["__10_0.distcp", "__1_1.whole"], False, id="the file of another rank"),
    ],
)
def test_a_folder_with_markers_is_complete_at_the_first_scan_or_never(names: list[str], complete: bool) -> None:
    for local in (Local(0, 1, 2), Local(1, 1, 2), Local(2, 2, 4)):
        recognition, files = Recognition(local), tuple(file(f"step-5/{name}") for name in names)
        for at in (0.0, FOLDER_REST_SECONDS):
            found = recognition.follow(Scan(files, at, alive=False))
            assert (list(found.units), found.busy) == (["step-5"] if complete else [], "")


def test_a_file_written_in_place_after_a_rename_is_not() -> None:
    disk = Disk()
    renamed(disk)
    recognition = Recognition()
    for files, _ in disk.states:
        recognition.follow(Scan(files, 0.1))
    torn = SeenFile("latest.pt", 1, 99, disk.files["latest.pt"].inode)
    assert not recognition.follow(Scan((torn,), 0.2, alive=False)).units


def file(path: str, **more: object) -> SeenFile:
    return SeenFile(path, 5, 1, abs(hash(path)), **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("paths", "local", "complete"),
    [
        pytest.param(["a.pt"], Local(), ["a.pt"], id="a file"),
        pytest.param(["a.tmp", ".a.pt", "tmp-7/a.pt", "a.pt.part"], Local(), [], id="temporary names"),
        pytest.param(["events.out.tfevents.1", "train.log"], Local(), [], id="logs"),
        pytest.param(["step-5-rank0.pt"], Local(0, 2, 2), [], id="a rank of this pod has not written yet"),
        pytest.param(["r-5-rank0.pt", "r-5-rank1.pt"], Local(2, 2, 4), [], id="as many ranks, but of another pod"),
        pytest.param(["r-5-rank0.pt", "r-5-rank1.pt"], Local(0, 2, 4), ["r-5-rank*.pt"], id="all ranks of this pod"),
        pytest.param(["step-5/rank2.pt"], Local(2, 1, 4), ["step-5"], id="the part of a later rank"),
        pytest.param(["step-5/__1_0.distcp"], Local(1, 1, 2), ["step-5"], id="a part of DCP"),
        pytest.param(["step-5/__0_0.distcp"], Local(0, 1, 2), [], id="DCP without its metadata"),
        pytest.param(["checkpoint-5/optimizer.pt"], Local(), [], id="Hugging Face without the last file"),
        pytest.param(
            ["checkpoint-5/model/.metadata", "checkpoint-5/model/__0_0.distcp", "checkpoint-5/scheduler.pt"],
            Local(),
            [],
            id="Hugging Face in shards without the last file",
        ),
        pytest.param(
            ["step-5/model/.metadata", "step-5/model/__0_0.distcp", "step-5/optimizer/__0_0.distcp"],
            Local(),
            [],
            id="DCP in two folders, one without its metadata",
        ),
        pytest.param(["run/3/a.pt", "run/3/b/c.pt"], Local(), ["run/3"], id="a folder with what is below it"),
    ],
)
def test_units_at_rest(paths: list[str], local: Local, complete: list[str]) -> None:
    recognition, files = Recognition(local), tuple(map(file, paths))
    recognition.follow(Scan(files, 0.0))
    assert list(recognition.follow(Scan(files, FOLDER_REST_SECONDS)).units) == complete


DELETED = "the oldest file with a step is deleted"
OFTEN = {
    "a folder": ["step-{}/a.pt", "step-{}/b.pt"],
    "a file": ["step-{}.pt"],
    "files of two kinds": ["model-{}.pt", "optimizer-{}.pt"],
    "a folder, then a pointer": ["step-{}/a.pt", "latest"],
    "a pointer, then a folder": ["latest", "step-{}/a.pt"],
    "one file": ["latest.pt"],
    "a file, then the oldest goes": ["step-{}.pt", DELETED],
    "the oldest goes, then a file": [DELETED, "step-{}.pt"],
}
"""What a script writes that saves again before the directory is at rest."""


def save_once(disk: Disk, way: str, step: int) -> None:
    """One save of this way: two files with steps are kept where the oldest goes."""
    for path in OFTEN[way]:
        old = f"step-{step - 10}.pt"
        if path is not DELETED:
            write(disk, path.format(step))
        elif old in disk.files:
            disk.remove(old)
            if OFTEN[way][0] is DELETED:
                disk.rest()  # the newest save is whole, and the next one has not begun


@pytest.mark.parametrize("way", OFTEN)
def test_what_is_taken_while_the_next_save_is_written_was_there_between_two_saves(way: str) -> None:
    disk = Disk()
    for step in (5, 10, 15):
        save_once(disk, way, step)
        disk.rest()
    for pace in (0.3, 0.7, 1.1, 3.1):
        for scans in moments(len(disk.states)):
            recognition, at = Recognition(), 0.0
            for moment in scans:
                for _ in range(3):
                    at += pace
                    found = recognition.follow(Scan(disk.states[moment][0], at))
                    if found.busy and found.together:
                        taken = changes(file for unit in found.units.values() for file in unit)
                        assert taken in disk.quiet, (pace, scans)


@pytest.mark.parametrize(
    ("way", "taken"),
    [
        ("a folder", {"step-5", "step-10"}),
        ("a file", {"step-5.pt", "step-10.pt"}),
        ("one file", set()),
        ("a file, then the oldest goes", {"step-5.pt", "step-10.pt"}),
        ("the oldest goes, then a file", {"step-5.pt", "step-10.pt"}),
    ],
)
def test_a_script_that_saves_often_has_saves_too(way: str, taken: set[str]) -> None:
    """Each save takes longer than the rest that completes it, and the next one begins at once."""
    disk = Disk()
    for step in (5, 10, 15):
        save_once(disk, way, step)
    found = set[str]()
    recognition, pace = Recognition(), FOLDER_REST_SECONDS / 5
    for moment, (files, _) in enumerate(disk.states):
        scan = recognition.follow(Scan(files, moment * pace))
        found |= scan.units.keys() if scan.together else set()
    assert found == taken


def test_a_save_that_is_written_again_is_waited_for() -> None:
    """Without it the rest is older than what is held."""
    five, ten = SeenFile("step-5.pt", 5, 1, 5), SeenFile("step-10.pt", 5, 2, 10)
    again = SeenFile("step-10.pt", 0, 3, 10, writing=True)
    recognition = Recognition()
    for at, files in enumerate([(five,), (five,), (five, ten), (five, ten), (five, again), (five, again)]):
        found = recognition.follow(Scan(files, at * REST_SECONDS))
    assert (found.busy, found.together) == ("step-10.pt", False)


def test_saves_that_are_written_at_the_same_time_are_waited_for() -> None:
    first = SeenFile("step-5/a.pt", 5, 1, 5)
    last, next_ = SeenFile("step-5/b.pt", 5, 3, 6), SeenFile("step-10/a.pt", 0, 2, 10, writing=True)
    recognition = Recognition()
    for at, files in enumerate([(first,), (first, next_), (first, next_, last), (first, next_, last)]):
        found = recognition.follow(Scan(files, at * FOLDER_REST_SECONDS))
    assert (list(found.units), found.busy, found.together) == (["step-5"], "step-10", False)


def test_a_file_that_is_written_again_and_again_is_restless() -> None:
    recognition = Recognition()
    found = [
        recognition.follow(Scan((SeenFile("latest.pt", 5, moment, 1),), moment / 2)).restless
        for moment in range(RESTLESS_CHANGES + 2)
    ]
    assert found == [False] * RESTLESS_CHANGES + [True] * 2
    recognition.follow(Scan((SeenFile("latest.pt", 5, 999, 1),), 200.0))
    assert not recognition.follow(Scan((SeenFile("latest.pt", 5, 999, 1),), 202.0)).restless
    assert not recognition.follow(Scan((SeenFile("latest.pt", 5, 1000, 1),), 203.0)).restless, "it was at rest"


def test_a_directory_without_a_quiet_moment_is_restless() -> None:
    """Two files are written in turn, each while the other one is at rest."""
    recognition, seconds = Recognition(), 2 * REST_SECONDS
    found = []
    for turn in range(int(RESTLESS_SECONDS / seconds) + 3):
        files = [SeenFile(f"{name}.pt", 5, (turn + at) // 2, at, (turn + at) % 2 == 0) for at, name in enumerate("ab")]
        found.append(recognition.follow(Scan(tuple(files), turn * seconds)).restless)
    assert (found[0], found[10], found[-1]) == (False, False, True)


def test_what_is_open_delays_the_others_but_not_forever() -> None:
    recognition, files = Recognition(), (file("a.pt"), file("b.pt", writing=True))
    recognition.follow(Scan(files, 0.0))
    assert recognition.follow(Scan(files, 5.0)).busy == "b.pt"
    found = recognition.follow(Scan(files, LONG_OPEN_SECONDS))
    assert (found.busy, list(found.units)) == ("", ["a.pt"])


def test_a_worker_that_ends_with_success_has_finished_its_save() -> None:
    files = (file("a.pt"), file("step-5/__0_0.distcp"))
    recognition = Recognition()
    recognition.follow(Scan(files, 0.0))
    assert list(recognition.end(Scan(files, 0.1, alive=False), clean=True).units) == ["a.pt"]


def test_a_table_that_is_kept_open_delays_no_save_and_is_in_none() -> None:
    """It was opened before the save was written. A kill closes it, and it is still known for what it is."""
    recognition = Recognition()
    table, save = SeenFile("metrics.csv", 5, 1, 1, writing=True), SeenFile("latest.pt", 9, 2, 2)
    recognition.follow(Scan((table,), 0.0))
    recognition.follow(Scan((table, replace(save, writing=True)), 1.0))
    recognition.follow(Scan((table, save), 2.0))
    found = recognition.follow(Scan((table, save), 3.5))
    assert (set(found.units), found.together) == ({"latest.pt"}, True)
    recognition.follow(Scan((replace(table, writing=False), save), 4.0, alive=False))
    found = recognition.end(Scan((replace(table, writing=False), save), 4.1, alive=False), clean=False)
    assert (set(found.units), found.together) == ({"latest.pt"}, True)
    assert recognition.kept_open == {"metrics.csv": 1}


def test_a_file_that_is_opened_after_another_delays_it() -> None:
    recognition = Recognition()
    model, other = SeenFile("model.pt", 9, 2, 2), SeenFile("optimizer.pt", 5, 1, 1, writing=True)
    recognition.follow(Scan((model,), 0.0))
    recognition.follow(Scan((model, other), 1.0))
    assert not recognition.follow(Scan((model, replace(other, size=7)), 2.0)).together
