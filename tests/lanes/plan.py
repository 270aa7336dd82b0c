"""Which lanes there are, which test runs in which lane, and what is left out."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from tests.lanes.machine import Lack

LONG = "long"
ALONE = "alone"
NOT_APPLICABLE = 77
"""The exit code by which a lane's last command reports that it cannot judge this run."""
Tests = Mapping[str, frozenset[str]]
"""The names of the markers of each test, by the test's id."""


@dataclass(frozen=True)
class Selection:
    """Tests by their markers: all of `needs` and none of `excludes`."""

    needs: frozenset[str] = frozenset()
    excludes: frozenset[str] = frozenset()

    def takes(self, markers: frozenset[str]) -> bool:
        """Return whether a test with these markers belongs to it."""
        return self.needs <= markers and not self.excludes & markers

    def and_also(self, needs: Iterable[str] = (), excludes: Iterable[str] = ()) -> "Selection":
        """Return a narrower selection."""
        return Selection(self.needs | {*needs}, self.excludes | {*excludes})

    @property
    def expression(self) -> str:
        """The selection in the words of pytest's option -m."""
        return " and ".join([*sorted(self.needs), *(f"not {name}" for name in sorted(self.excludes))])


def select(needs: str = "", excludes: str = "") -> Selection:
    """Make a selection of words."""
    return Selection(frozenset(needs.split()), frozenset(excludes.split()))


@dataclass(frozen=True)
class Command:
    """One command of a lane."""

    words: tuple[str, ...]
    counts: bool = False
    """It counts like a test, and the lane goes on after its failure; else it prepares, and the lane ends with it."""

    @property
    def name(self) -> str:
        return " ".join(self.words)


@dataclass(frozen=True)
class Session:
    """One run of pytest."""

    name: str
    selection: Selection
    options: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    """Where its tests are: importing all others would take each process longer than most lanes' tests."""


@dataclass(frozen=True)
class Lane:
    """Commands and then pytest runs, one after the other."""

    name: str
    commands: tuple[Command, ...] = ()
    sessions: tuple[Session, ...] = ()
    nice: int = 5
    """How far its processes stand back, so that the longest lane, with a whole cluster in it, is not starved."""
    judges: tuple[Command, ...] = ()
    """What the lane runs at its end, over its whole run: only if each of its tests ran, and passed."""
    ends: tuple[Command, ...] = ()
    """What the lane runs in any case when it is over: a cluster that idles takes half a core from the other lanes."""
    minutes: int = 80
    """The lane fails when it takes longer: something hangs. Building all of Kubernetes is in it where it is needed."""


@dataclass(frozen=True)
class LeftOut:
    """A kind of tests that does not run here."""

    kind: str
    tests: int
    lack: Lack
    follows: bool = False
    """It is left out only because another kind is."""


@dataclass(frozen=True)
class Plan:
    """What runs: lanes within a track one after the other, the tracks side by side."""

    tracks: tuple[tuple[Lane, ...], ...]
    left_out: tuple[LeftOut, ...] = ()
    problems: tuple[str, ...] = field(default=())
    """Tests that would run in no lane, or in two."""


def _make(target: str) -> Command:
    return Command(("make", "--no-print-directory", "-o", ".venv", target))


def _check(*words: str) -> Command:
    return Command(words, counts=True)


def _rights(action: str) -> Command:
    return Command(("python", "-m", "tests.rights", action))


_SPREAD = ("--dist", "loadfile")  # a file's tests share fixtures, and keep their order
_HEAVY = "apiserver helm torch torch_oldest"
CHECK = Lane(
    "check",
    commands=(
        _check("ruff", "format", "--check", "."),
        _check("ruff", "check", "."),
        _check("mypy"),
        _check("lint-imports"),
        _check("make", "--no-print-directory", "-o", ".venv", "check-site"),
        _check("make", "--no-print-directory", "-o", ".venv", "verify"),
    ),
    minutes=15,
)
UNIT = Lane("unit", sessions=(Session("", select("", f"{_HEAVY} cluster")),))
TORCH = Lane("torch", sessions=(Session("", select("torch", "torch_oldest"), ("-n", "2", *_SPREAD)),))
OLDEST = Lane("torch-oldest", (_make("torch-oldest"),), (Session("", select("torch_oldest")),), minutes=45)
APISERVER = Lane(
    "apiserver",
    (_make("binaries-tests"),),
    (Session("", select("apiserver"), ("-n", "2", *_SPREAD)),),
    minutes=60,
)
CHART = Lane("chart", (), (Session("", select("helm", "apiserver")),))
CLUSTER = Lane(
    "cluster",
    (_make("cluster"), _make("out/kubeflow-training/installed"), _rights("begin")),
    (
        Session("side by side", select("cluster", ALONE), ("-n", "2", *_SPREAD)),
        Session("alone", select(f"cluster {ALONE}")),
    ),
    nice=0,
    judges=(_rights("check"),),
    ends=(_check("make", "--no-print-directory", "-o", ".venv", "cluster-down"),),
    minutes=90,
)
TRACKS = ((CLUSTER,), (APISERVER, CHART, TORCH), (CHECK, UNIT, OLDEST))
"""Of equal length, about: the longest one is the time of `make test`."""
_LONG_TRACKS = ((CLUSTER, APISERVER, CHART, TORCH), (CHECK, UNIT, OLDEST))
"""Beside jobs that start again and again, the agents of a cluster are not heard in time."""
_LONG_COMMANDS = {
    APISERVER.name: (_make("binaries-kueue"), _make("binaries-gangs"), _make("binaries-cosign")),
    TORCH.name: (_make("libraries"),),
}
"""Programs and packages that only long tests need."""
_LONG_MINUTES = 240
_LONG_OPTIONS = ("-n", "3", *_SPREAD)
"""Those of torch mostly wait for the next moment to kill something: two at a time leave the cores idle."""


def plan(tests: Tests, absent: Mapping[str, Lack], long: bool = False, keep_cluster: bool = False) -> Plan:
    """Return what to run of these tests where some kinds cannot run or are not wanted.

    `long` runs the tests that `make test` leaves to `make test-long`, and no others. `keep_cluster`: it was there
    before.
    """
    chosen = {name: markers for name, markers in tests.items() if (LONG in markers) is long}
    wanted = {name: markers for name, markers in chosen.items() if not markers & absent.keys()}
    tracks = [
        [_narrowed(lane, wanted, [*absent], long) for lane in track] for track in (_LONG_TRACKS if long else TRACKS)
    ]
    partial = [] if long else [lane for track in TRACKS for lane in track if _runs_in_part(lane, chosen, wanted)]
    unjudged = {lane.name for lane in partial}
    tracks = [[replace(lane, judges=()) if lane.name in unjudged else lane for lane in track] for track in tracks]
    kept = [tuple(lane for lane in track if lane.sessions or (lane.commands and lane is CHECK)) for track in tracks]
    if long:
        kept = [tuple(lane for lane in track if lane is not CHECK) for track in kept]
    if keep_cluster:
        kept = [
            tuple(replace(lane, ends=()) if lane.name == CLUSTER.name else lane for lane in track) for track in kept
        ]
    running = tuple(track for track in kept if track)
    left_out = (*_left_out(chosen, absent), *(_without_judge(lane, judge) for lane in partial for judge in lane.judges))
    return Plan(running, left_out, tuple(_problems(wanted, running)))


def _narrowed(lane: Lane, wanted: Tests, absent: list[str], long: bool) -> Lane:
    """The lane without what does not run, and without sessions that would find nothing."""
    if lane is CHECK:
        return lane
    sessions = []
    for session in lane.sessions:
        found = session.selection.and_also([LONG] * long, [*absent, *[LONG] * (not long)])
        files = {name.partition("::")[0] for name, markers in wanted.items() if found.takes(markers)}
        if files:
            options = _LONG_OPTIONS if long and lane is TORCH else session.options
            sessions.append(replace(session, selection=found, files=tuple(sorted(files)), options=options))
    if long:
        commands = (*lane.commands, *_LONG_COMMANDS.get(lane.name, ()))
        return replace(lane, commands=commands, sessions=tuple(sessions), judges=(), minutes=_LONG_MINUTES)
    return replace(lane, sessions=tuple(sessions))


def _runs_in_part(lane: Lane, chosen: Tests, wanted: Tests) -> bool:
    return any(
        session.selection.takes(markers)
        for name, markers in chosen.items()
        if name not in wanted
        for session in lane.sessions
    )


def _without_judge(lane: Lane, command: Command) -> LeftOut:
    why = f"it judges a whole run of the lane {lane.name}, and some of its tests are left out"
    return LeftOut(command.name, 1, Lack(why, "leave none of them out"), follows=True)


def _left_out(chosen: Tests, absent: Mapping[str, Lack]) -> Iterable[LeftOut]:
    """A row for each kind; a test that lacks two things is in the row of the first."""
    rest = list(chosen.values())
    for kind, lack in absent.items():
        yield LeftOut(kind, sum(kind in markers for markers in rest), lack)
        rest = [markers for markers in rest if kind not in markers]


def _problems(wanted: Tests, tracks: Iterable[Iterable[Lane]]) -> Iterable[str]:
    sessions = [(lane, session) for track in tracks for lane in track for session in lane.sessions]
    for name, markers in wanted.items():
        found = [lane.name for lane, one in sessions if one.selection.takes(markers)]
        if len(found) != 1:
            yield f"{name} is in {len(found)} lanes: {' '.join(found) or 'give it a marker of a lane'}"
