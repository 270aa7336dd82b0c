"""What is read from the files that mutmut writes."""

import json
from pathlib import Path

import pytest

from tests.mutation import plan, results, work
from tests.mutation.results import Mutant, Score
from tests.mutation.work import forget_survivors

MUTATED = """
def x_wait__mutmut_orig(since, now):
    return now - since >= 5

def x_wait__mutmut_1(since, now):
    return now + since >= 5

def x_wait__mutmut_2(since, now):
    return now - since > 5

class Round:
    def xǁRoundǁhas__mutmut_orig(self, index, other="a"):
        return index in self.ranks

    def xǁRoundǁhas__mutmut_1(self, index, other="a"):
        return index not in self.ranks

    def xǁRoundǁhas__mutmut_2(self, index, other="A"):
        return index in self.ranks
"""
CODES = {"m.x_wait__mutmut_1": 1, "m.x_wait__mutmut_2": 0, "m.xǁRoundǁhas__mutmut_1": -24}
EDGE = Mutant("m", "wait", "return now - since >= 5", "return now - since > 5", results.SURVIVED)


def written(folder: Path, codes: dict[str, int | None] = CODES) -> list[Mutant]:
    path = folder / "m.py"
    path.write_text(MUTATED)
    Path(f"{path}.meta").write_text(json.dumps({"exit_code_by_key": codes}))
    return results.read(path, "m")


def test_a_mutant_is_the_line_that_changed(tmp_path: Path) -> None:
    first, second, third = written(tmp_path)
    assert (first.outcome, first.after) == (results.KILLED, "return now + since >= 5")
    assert second == EDGE
    assert (third.function, third.outcome) == ("Round.has", results.TIMEOUT)


def test_a_mutant_of_a_default_is_the_signature(tmp_path: Path) -> None:
    found = written(tmp_path, {"m.xǁRoundǁhas__mutmut_2": 0})[0]
    assert (found.before, found.after) == ('def has(self, index, other="a"):', 'def has(self, index, other="A"):')


@pytest.mark.parametrize(
    ("code", "outcome"),
    [
        pytest.param(1, results.KILLED, id="a test failed"),
        pytest.param(0, results.SURVIVED, id="all tests passed"),
        pytest.param(33, results.SURVIVED, id="no test reaches it"),
        pytest.param(36, results.TIMEOUT, id="the tests did not end"),
        pytest.param(None, results.UNCHECKED, id="it was not tried"),
        pytest.param(-11, results.KILLED, id="the process died"),
    ],
)
def test_an_exit_code_has_a_meaning(tmp_path: Path, code: int | None, outcome: str) -> None:
    assert written(tmp_path, {"m.x_wait__mutmut_1": code})[0].outcome == outcome


def test_a_survivor_with_a_reason_does_not_count(tmp_path: Path) -> None:
    mutants = written(tmp_path)
    assert results.score(mutants, {}) == Score(3, killed=1, timeouts=1, explained=0, survived=1)
    assert results.score(mutants, {EDGE.key: "why"}) == Score(3, killed=1, timeouts=1, explained=1, survived=0)
    assert results.score(mutants, {}).percent == pytest.approx(66.7, abs=0.1)
    assert results.score(mutants, {EDGE.key: "why"}).percent == 100.0
    assert results.unexplained(mutants, {EDGE.key: "why"}) == {}
    assert results.unexplained(mutants, {}) == {("m", "wait"): [EDGE]}


def test_every_survivor_of_the_committed_list_has_a_reason_and_a_module() -> None:
    for (module, function, _, _), why in results.explained(work.ROOT / "tests/mutation/explained.toml").items():
        assert module in work.modules(), module
        assert len(why) > 10, (module, function)


def test_every_entry_of_the_committed_list_names_a_line_of_its_function() -> None:
    assert results.stale(results.explained(work.ROOT / "tests/mutation/explained.toml"), work.ROOT / "operator") == []


SOURCE = """
def wait(since, now):
    return now - since >= 6

def other(since, now):
    return now - since >= 5

class Round:
    def has(self, index):
        return index in (
            self.ranks
        )
"""


@pytest.mark.parametrize(
    ("key", "stale"),
    [
        pytest.param(("m", "wait", "return now - since >= 6", "x"), False, id="a line of its function"),
        pytest.param(("m", "Round.has", "return index in ( self.ranks )", "x"), False, id="lines of its method"),
        pytest.param(EDGE.key, True, id="only another function has the line"),
        pytest.param(("m", "has", "return index in (", "x"), True, id="only a method has the name"),
        pytest.param(("m", "gone", "return 1", "x"), True, id="no function has the name"),
        pytest.param(("gone", "wait", "return now - since >= 6", "x"), True, id="no module has the name"),
    ],
)
def test_an_entry_that_names_no_mutant_is_stale(tmp_path: Path, key: results.Key, stale: bool) -> None:
    (tmp_path / "m.py").write_text(SOURCE)
    assert results.stale({key: "why"}, tmp_path) == [key] * stale


def test_survivors_and_timeouts_are_tried_again_and_killed_mutants_are_not(tmp_path: Path) -> None:
    written(tmp_path)
    forget_survivors([tmp_path / "m.py", tmp_path / "not_mutated_yet.py"])
    codes = json.loads((tmp_path / "m.py.meta").read_text())["exit_code_by_key"]
    assert codes == {**dict.fromkeys(CODES), "m.x_wait__mutmut_1": 1}


def test_at_least_nine_of_ten_mutants_of_every_module_are_killed() -> None:
    known = json.loads((work.ROOT / "tests/mutation/results.json").read_text())
    every = {module for modules in plan.chosen([], work.modules()).values() for module in modules}
    assert set(known) <= every, "modules that are gone"
    scores = {
        module: Score(**{name: found[name] for name in Score.__dataclass_fields__}) for module, found in known.items()
    }
    assert {module: score.percent for module, score in scores.items() if score.percent < 90} == {}
