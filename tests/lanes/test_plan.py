"""Every test belongs to one lane, and what cannot run is named with its reason."""

import itertools

import pytest

from tests.lanes.machine import Lack
from tests.lanes.plan import TRACKS, LeftOut, Plan, Tests, plan, select

KINDS = ["apiserver", "helm", "torch", "torch_oldest", "long"]
GO = Lack("Go is missing", "install Go")


def named(**markers: str) -> Tests:
    """Tests by their names; two underscores stand for a slash."""
    return {name.replace("__", "/"): frozenset(text.split()) for name, text in markers.items()}


def lanes(found: Plan) -> dict[str, list[str]]:
    """The expressions of the sessions of each lane that runs tests."""
    return {
        lane.name: [session.selection.expression for session in lane.sessions]
        for track in found.tracks
        for lane in track
        if lane.sessions
    }


@pytest.mark.parametrize(
    ("markers", "lane"),
    [
        pytest.param("", "unit", id="no marker: unit"),
        pytest.param("asyncio parametrize", "unit", id="markers of pytest's change nothing"),
        pytest.param("apiserver", "apiserver", id="the API server"),
        pytest.param("apiserver helm", "apiserver", id="helm against the API server"),
        pytest.param("helm", "chart", id="helm alone"),
        pytest.param("torch", "torch", id="torch"),
        pytest.param("torch_oldest", "torch-oldest", id="the oldest torch"),
    ],
)
def test_a_marker_decides_the_lane(markers: str, lane: str) -> None:
    assert [*lanes(plan(named(tests__x=markers), {}))] == [lane]


@pytest.mark.parametrize(
    ("markers", "expression"),
    [
        pytest.param("cluster", "cluster and not alone and not long", id="with others"),
        pytest.param("cluster alone", "alone and cluster and not long", id="alone, after the others"),
    ],
)
def test_a_test_on_the_cluster_runs_with_others_or_alone(markers: str, expression: str) -> None:
    assert lanes(plan(named(e2e__x=markers), {})) == {"cluster": [expression]}


def test_whatever_markers_a_test_has_it_is_in_one_lane_or_it_is_named() -> None:
    combinations = [frozenset(chosen) for count in range(len(KINDS)) for chosen in itertools.combinations(KINDS, count)]
    tests = {f"tests/{'-'.join(sorted(markers))}": markers for markers in combinations}
    for long in (False, True):
        found = plan(tests, {}, long)
        of_two_lanes = [
            name for name, one in tests.items() if {"torch", "apiserver"} <= one and ("long" in one) is long
        ]
        assert of_two_lanes
        assert all(any(problem.startswith(f"{name} is in 2") for problem in found.problems) for name in of_two_lanes)


def test_long_tests_run_apart() -> None:
    tests = named(tests__x="torch", tests__y="torch long")
    assert lanes(plan(tests, {})) == {"torch": ["torch and not long and not torch_oldest"]}
    assert lanes(plan(tests, {}, long=True)) == {"torch": ["long and torch and not torch_oldest"]}


@pytest.mark.parametrize(
    ("kind", "always", "long"),
    [
        ("apiserver", {"binaries-tests"}, {"binaries-tests", "binaries-kueue", "binaries-gangs", "binaries-cosign"}),
        ("torch", set(), {"libraries"}),
    ],
)
def test_long_tests_get_what_no_other_test_needs(kind: str, always: set[str], long: set[str]) -> None:
    prepared = []
    for chosen in (False, True):
        found = plan(named(tests__x=kind, tests__y=f"{kind} long"), {}, chosen)
        [commands] = [lane.commands for track in found.tracks for lane in track if lane.sessions]
        prepared.append({command.words[-1] for command in commands})
    assert prepared == [always, long]


def test_what_is_absent_is_left_out_and_counted_once() -> None:
    tests = named(tests__x="", tests__y="helm", tests__z="apiserver helm", e2e__a="cluster")
    helm = Lack("WITHOUT names it", "remove it from WITHOUT")
    found = plan(tests, {"apiserver": GO, "helm": helm, "cluster": GO})
    assert [*lanes(found)] == ["unit"]
    counted = [row for row in found.left_out if not row.follows]
    assert counted == [LeftOut("apiserver", 1, GO), LeftOut("helm", 1, helm), LeftOut("cluster", 1, GO)]


@pytest.mark.parametrize(
    ("absent", "judged", "rows"),
    [
        pytest.param("", True, [], id="all of its tests run"),
        pytest.param("torch", True, [], id="another lane is left out"),
        pytest.param("alone", False, ["python -m tests.rights check"], id="some of its tests are left out"),
        pytest.param("cluster", False, ["python -m tests.rights check"], id="it is left out"),
    ],
)
def test_what_judges_a_whole_lane_is_left_out_with_any_of_its_tests(absent: str, judged: bool, rows: list[str]) -> None:
    tests = named(e2e__x="cluster", e2e__y="cluster alone", tests__z="torch")
    found = plan(tests, dict.fromkeys(absent.split(), GO))
    judges = [judge.name for track in found.tracks for lane in track for judge in lane.judges]
    assert judges == (["python -m tests.rights check"] if judged else [])
    assert [row.kind for row in found.left_out if row.follows] == rows


@pytest.mark.parametrize("long", [False, True])
@pytest.mark.parametrize(("keeps", "ended"), [(False, ["cluster-down"]), (True, [])])
def test_the_cluster_ends_with_its_lane_unless_it_was_there_before(long: bool, keeps: bool, ended: list[str]) -> None:
    found = plan(named(e2e__x="cluster", e2e__y="cluster long"), {}, long, keeps)
    assert [end.words[-1] for track in found.tracks for lane in track for end in lane.ends] == ended


def test_a_machine_without_tests_of_a_lane_has_nothing_to_judge() -> None:
    assert plan(named(tests__x=""), {"cluster": GO}).left_out == (LeftOut("cluster", 0, GO),)


def test_the_long_tests_of_a_lane_are_not_judged() -> None:
    found = plan(named(e2e__x="cluster long", e2e__y="cluster"), {}, long=True)
    assert [lane.judges for track in found.tracks for lane in track] == [()]
    assert found.left_out == ()


def test_the_rest_of_a_lane_runs_when_a_kind_is_absent() -> None:
    tests = named(tests__x="apiserver", tests__y="apiserver helm")
    found = plan(tests, {"helm": GO})
    assert lanes(found) == {"apiserver": ["apiserver and not helm and not long"]}
    assert found.problems == ()


def test_a_lane_reads_the_files_of_its_tests_only() -> None:
    tests = {"tests/a.py::x": frozenset(["torch"]), "tests/a.py::y": frozenset(), "tests/b.py::z": frozenset()}
    files = {
        lane.name: [session.files for session in lane.sessions] for track in plan(tests, {}).tracks for lane in track
    }
    assert files == {"check": [], "unit": [("tests/a.py", "tests/b.py")], "torch": [("tests/a.py",)]}


def test_nothing_is_prepared_for_a_lane_without_tests() -> None:
    found = plan(named(tests__x=""), {})
    assert [lane.name for track in found.tracks for lane in track] == ["check", "unit"]


def test_the_checks_are_no_part_of_the_long_tests() -> None:
    assert [lane.name for track in plan(named(tests__x="long"), {}, long=True).tracks for lane in track] == ["unit"]


def test_a_selection_takes_what_its_expression_says() -> None:
    chosen = select("a b", "c")
    assert chosen.expression == "a and b and not c"
    assert [chosen.takes(frozenset(text)) for text in ("ab", "abd", "a", "abc")] == [True, True, False, False]


def test_every_lane_has_a_name_of_its_own_and_a_limit() -> None:
    every = [lane for track in TRACKS for lane in track]
    assert len({lane.name for lane in every}) == len(every)
    assert all(lane.minutes > 0 for lane in every)
