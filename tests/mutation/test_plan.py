"""Which modules a name chooses, and that the plan fits the sources."""

import pytest

from tests.mutation import plan, work

KNOWN = ["pytorchjob_agent/hangs/judge", "pytorchjob_operator/rounds/budget", "pytorchjob_operator/rounds/losses"]


@pytest.mark.parametrize(
    ("wanted", "modules"),
    [
        pytest.param([], KNOWN, id="no name: all"),
        pytest.param(["rounds"], KNOWN[1:], id="a group"),
        pytest.param(["rounds/budget"], KNOWN[1:2], id="the end of a path"),
        pytest.param(["budget", "judge"], KNOWN[:2], id="two names"),
    ],
)
def test_names_choose_modules(wanted: list[str], modules: list[str]) -> None:
    found = plan.chosen(wanted, KNOWN)
    assert sorted(module for chosen in found.values() for module in chosen) == modules


@pytest.mark.parametrize("name", ["udget", "rounds/nothing"])
def test_a_name_that_no_module_has_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=name):
        plan.chosen([name], KNOWN)


@pytest.mark.parametrize("group", [pytest.param(group, id=group.name) for group in plan.GROUPS])
def test_a_groups_modules_and_tests_exist(group: plan.Group) -> None:
    assert any(map(group.holds, work.modules()))
    assert work.tests(group)
    for path in group.without:
        assert (work.ROOT / path.partition("::")[0]).exists(), path


def test_no_module_belongs_to_two_groups() -> None:
    for module in work.modules():
        assert sum(group.holds(module) for group in plan.GROUPS) <= 1, module
