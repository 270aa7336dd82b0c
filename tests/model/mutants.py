"""Jobs with one value replaced, removed or added anywhere: no input may break a judge, and two judges must agree."""

import copy
from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st

from tests.model import corpus

_VALUES: list[Any] = [
    "",
    "x",
    "1",
    "auto",
    "x\n",
    "\u00e9",
    None,
    0,
    1,
    -1,
    11,
    2**40,
    2**63,
    1.5,
    True,
    [],
    {},
    ["x"],
    [{}],
    [None],
    {"x": 1},
    {"x": None},
    {"name": "x"},
]


def mutants() -> st.SearchStrategy[corpus.Job]:
    """A good job that went wrong in one place, or not."""
    return st.sampled_from(sorted(corpus.GOOD)).flatmap(_of)


def _of(name: str) -> st.SearchStrategy[corpus.Job]:
    job = corpus.GOOD[name]
    paths = [path for path in _paths(job["spec"], ("spec",)) if path != ("spec",)]
    kinds = st.sampled_from(["replace", "remove", "add"])
    return st.builds(_mutate, st.just(job), st.sampled_from(paths), kinds, st.sampled_from(_VALUES))


def _mutate(job: corpus.Job, path: tuple[Any, ...], kind: str, value: Any) -> corpus.Job:
    made = copy.deepcopy(job)
    node: Any = made
    for part in path[:-1]:
        node = node[part]
    if kind == "add" and isinstance(node[path[-1]], dict):
        node[path[-1]]["tomorrow"] = value
    elif kind == "remove":
        del node[path[-1]]
    else:
        node[path[-1]] = value
    return made


def _paths(node: Any, path: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    yield path
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, value in items:
        yield from _paths(value, (*path, key))
