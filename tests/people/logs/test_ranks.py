"""The rank that printed a line, and the ranks that a person selects."""

import re
from typing import Any

import pytest

from pytorchjob.logs.ranks import PodRanks, parse_ranks, pod_ranks
from pytorchjob_agent.contract.log_lines import AGENT, round_line
from pytorchjob_agent.contract.messages import Assigned, RoundId


@pytest.mark.parametrize(
    ("text", "chosen"),
    [("3", {3}), ("0,3-5", {0, 3, 4, 5}), (" 1 , 2 ", {1, 2}), ("4-4", {4}), ("2,2", {2}), ("0-1,1-2", {0, 1, 2})],
)
def test_a_choice_of_ranks(text: str, chosen: set[int]) -> None:
    ranks = parse_ranks(text)
    assert {rank for rank in range(10) if ranks.has(rank)} == chosen


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "`` is not a rank: write ranks and ranges of ranks, such as 0,3-5"),
        ("0,,1", "`` is not a rank: write ranks and ranges of ranks, such as 0,3-5"),
        ("-1", "`-1` is not a rank: write ranks and ranges of ranks, such as 0,3-5"),
        ("1-", "`1-` is not a rank: write ranks and ranges of ranks, such as 0,3-5"),
        ("master", "`master` is not a rank: write ranks and ranges of ranks, such as 0,3-5"),
        ("5-3", "the range `5-3` ends before it begins: write 3-5"),
    ],
)
def test_a_wrong_choice_is_named(text: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=re.escape(sentence)):
        parse_ranks(text)


@pytest.mark.parametrize(
    ("first", "count", "text", "label", "rest"),
    [
        pytest.param(None, None, b"[rank3]: step=1", "rank3", b"step=1", id="the agent's prefix"),
        pytest.param(None, None, b"[rank3]: [rank3]: Traceback", "rank3", b"Traceback", id="torch's prefix after it"),
        pytest.param(None, None, b"[rank3]: [rank4]: x", "rank3", b"[rank4]: x", id="a rank that the script prints"),
        pytest.param(2, 1, b"step=1", "rank2", b"step=1", id="a single process"),
        pytest.param(2, 1, b"pytorchjob-agent: x", "worker-1", b"pytorchjob-agent: x", id="the agent itself"),
        pytest.param(4, 2, b"step=1", "worker-1", b"step=1", id="a pod of two processes"),
        pytest.param(4, 2, b"[default1]:step=1", "rank5", b"step=1", id="torchrun's prefix"),
        pytest.param(None, None, b"[default1]:step=1", "worker-1:1", b"step=1", id="torchrun's prefix, ranks unknown"),
        pytest.param(None, None, b"[epoch3]: x", "worker-1", b"[epoch3]: x", id="a bracket of the script"),
        pytest.param(None, None, b"", "worker-1", b"", id="an empty line"),
    ],
)
def test_a_line_has_an_origin(first: int | None, count: int | None, text: bytes, label: str, rest: bytes) -> None:
    origin = PodRanks("worker-1", first, count).origin(text)
    assert (origin.label, origin.text) == (label, rest)


def test_after_a_named_rank_other_lines_are_the_pods() -> None:
    pod = PodRanks("worker-1", 2, 1)
    assert [pod.origin(text).label for text in (b"[rank2]: x", b"y")] == ["rank2", "worker-1"]


def of_round(first: int) -> bytes:
    """The agent's line about a round in which its pod has two ranks."""
    return f"{AGENT}{round_line(Assigned(RoundId(1, 2), 1, 3, first, 8, 'x', 1, 0), 2)}".encode()


@pytest.mark.parametrize(
    ("before", "text", "shown"),
    [
        pytest.param(b"", b"[rank4]: x", True, id="a chosen rank"),
        pytest.param(b"", b"[rank3]: x", False, id="another rank"),
        pytest.param(of_round(4), b"pytorchjob-agent: x", True, id="the agent of a chosen rank"),
        pytest.param(of_round(6), b"pytorchjob-agent: x", False, id="the agent of another"),
        pytest.param(b"[rank4]: x", b"a line of the pod", True, id="the pod of a chosen rank"),
        pytest.param(b"", b"a line of the pod", False, id="a pod whose ranks are unknown"),
    ],
)
def test_a_line_is_shown_with_its_rank_or_the_ranks_of_its_pod(before: bytes, text: bytes, shown: bool) -> None:
    pod = PodRanks("worker-1")
    pod.origin(before)
    assert pod.shows(pod.origin(text), parse_ranks("4,9")) is shown


def pod(command: list[str], **env: str) -> dict[str, Any]:
    variables = [{"name": name, "value": value} for name, value in env.items()]
    return {"spec": {"containers": [{"name": "pytorch", "command": command, "env": variables}]}}


@pytest.mark.parametrize(
    ("given", "fixed"),
    [
        pytest.param(pod(["python", "train.py"], RANK="2"), {2}, id="a script without a launcher"),
        pytest.param(pod(["torchrun", "train.py"], RANK="2", PET_NPROC_PER_NODE="4"), {8, 9, 10, 11}, id="four each"),
        pytest.param(pod(["torchrun", "train.py"], RANK="2", PET_NPROC_PER_NODE="auto"), set(), id="auto"),
        pytest.param(pod(["torchrun", "train.py"], PET_NPROC_PER_NODE="4"), set(), id="elastic: no fixed rank"),
        pytest.param(pod(["sh", "run.sh"], RANK="2"), set(), id="a shell script that may start a launcher"),
        pytest.param(pod([], RANK="2"), set(), id="the image's own command"),
        pytest.param({"spec": {"containers": []}}, set(), id="no such container"),
    ],
)
def test_the_environment_fixes_the_ranks(given: dict[str, Any], fixed: set[int]) -> None:
    assert pod_ranks(given, "worker-1", "pytorch").fixed == fixed
