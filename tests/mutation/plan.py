"""Which modules are mutated, and which tests have to notice it: few for each, so that a mutant costs little."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatch

OPERATOR, AGENT = "pytorchjob_operator", "pytorchjob_agent"


@dataclass(frozen=True)
class Group:
    """Modules that are mutated together, because the same tests concern them."""

    name: str
    modules: tuple[str, ...]
    """Paths below the source root, without `.py`; an asterisk stands for all modules of a package."""
    tests: tuple[str, ...]
    """Files and folders below the repository's root; an asterisk stands for the rest of a name."""
    without: tuple[str, ...] = ()
    """Tests of these folders that need more than the sources, or take too long."""

    def holds(self, module: str) -> bool:
        """Return whether the group mutates this module."""
        return any(fnmatch(module, pattern) for pattern in self.modules)


def alone(package: str, name: str, without: tuple[str, ...] = ()) -> Group:
    """Return a group of one module, with all tests whose names begin with its own: test_lease.py, test_lease_x.py."""
    folder, _, last = name.rpartition("/")
    short = "agent/" if package == AGENT else ""
    return Group(f"{short}{name}", (f"{package}/{name}",), (f"tests/{short}{folder}/test_{last}*.py",), without)


GROUPS = (
    # Both files wait for real servers; test_..._timeline.py does not.
    alone(OPERATOR, "kube/lease", without=("tests/kube/test_lease.py",)),
    alone(OPERATOR, "kube/reflector", without=("tests/kube/test_reflector.py",)),
    alone(OPERATOR, "kube/store"),
    Group(
        "rounds",
        (f"{OPERATOR}/rounds/*",),
        ("tests/rounds",),
        ("tests/rounds/test_plausibility.py::test_a_pod_that_reports_failures_without_end_takes_little_memory",),
    ),
    Group(
        "plan",
        (f"{OPERATOR}/plan/*",),
        ("tests/plan",),
        (  # each takes longer than all others together
            "tests/plan/test_properties.py",
            "tests/plan/test_budget.py",
            "tests/plan/test_quantity.py::test_a_total_is_exact_whatever_its_size",
            "tests/plan/test_status.py::test_a_life_is_three_writes_whatever_starts_or_ends_first",
            "tests/plan/test_status.py::test_the_life_of_200_pods_is_three_writes",
            "tests/plan/test_pod_events.py::test_a_thousand_pods_that_fail_one_after_the_other_make_few_events",
        ),
    ),
    *(
        alone(AGENT, name)
        for name in (
            "rendezvous/decide",
            "rendezvous/waiting",
            "rendezvous/agreement",
            "rendezvous/session",
            "rendezvous/inbox",
            "hangs/judge",
            "workers/start_choice",
            "preflight/checks",
            "preflight/policy",
        )
    ),
)
SPECIAL = {f"{OPERATOR}/rounds/diagram"}
"""Modules that only write a page of the docs."""


def chosen(wanted: Iterable[str], modules: Iterable[str]) -> Mapping[Group, list[str]]:
    """Return the modules to mutate by group; `wanted` are ends of paths like `rounds/budget`, or names of groups.

    Raises ValueError for a name that no module has.
    """
    wanted, known = [*wanted], sorted({*modules} - SPECIAL)
    found: dict[Group, list[str]] = {}
    unused = {*wanted}
    for group in GROUPS:
        for module in filter(group.holds, known):
            names = {name for name in wanted if name == group.name or f"/{module}".endswith(f"/{name}")}
            if names or not wanted:
                found.setdefault(group, []).append(module)
                unused -= names
    if unused:
        raise ValueError(f"no mutated module has the name {', '.join(sorted(unused))}")
    return found
