"""What a rank does about its operation after another one is lost; and its connection to the agent."""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence

import pytest

from pytorchjob_agent.contract.reasons import ShrinkState
from pytorchjob_agent.shrinks.round_shrinks import ShrinkServer
from pytorchjob_agent.workers.startup import pytorchjob_shrink
from pytorchjob_agent.workers.startup.pytorchjob_shrink import (
    Agent,
    Group,
    GroupChange,
    Operations,
    RankStanding,
    Resolution,
    ShrinkError,
    agree,
    owner,
)
from tests.waiting import SECONDS, until


def at(finished: int, operation: str = "gradients", root: int = -1) -> RankStanding:
    return RankStanding(finished, operation, root, "handle")


@pytest.mark.parametrize(
    ("standings", "outcomes"),
    [
        pytest.param({0: at(3), 2: at(3)}, {0: "repeat", 2: "repeat"}, id="nobody has passed the barrier"),
        pytest.param({0: at(3), 2: at(2)}, {0: "repeat", 2: "take"}, id="one has passed it"),
        pytest.param({0: at(3, "barrier"), 2: at(2)}, {0: "repeat", 2: "take"}, id="and is in another operation"),
        pytest.param({1: at(0)}, {1: "repeat"}, id="alone"),
        pytest.param({0: at(3, "b", 0), 1: at(3, "b", 0)}, {0: "repeat", 1: "repeat"}, id="the root is there"),
        pytest.param({0: at(3), 1: at(2, "b", 2)}, {0: "repeat", 1: "take"}, id="a lost root, but the result is there"),
    ],
)
def test_all_ranks_decide_the_same(standings: Mapping[int, RankStanding], outcomes: Mapping[int, str]) -> None:
    assert {rank: agree(standings, rank) for rank in standings} == {
        rank: Resolution(outcome) for rank, outcome in outcomes.items()
    }


@pytest.mark.parametrize(
    ("standings", "why"),
    [
        pytest.param({0: at(3), 2: at(1)}, "have finished 1 and 3", id="two apart"),
        pytest.param({0: at(3), 2: at(3, "barrier")}, "different operations: barrier, gradients", id="mismatch"),
        pytest.param({0: at(3), 1: at(2), 2: at(2, "barrier")}, "different operations", id="mismatch behind"),
        pytest.param({0: at(3, "b", 1), 2: at(3, "b", 1)}, "input at rank 1, which is lost", id="a lost root"),
        pytest.param({0: at(3, "b", 0), 2: at(3, "b", 2)}, "different operations", id="two roots"),
    ],
)
def test_what_cannot_be_repeated(standings: Mapping[int, RankStanding], why: str) -> None:
    for rank in standings:
        with pytest.raises(ShrinkError, match=why):
            agree(standings, rank)


def test_a_share_moves_only_if_its_owner_is_lost() -> None:
    for lost in range(8):
        before = [rank for rank in range(8) if rank != 3]
        after = [rank for rank in before if rank != lost]
        for share in range(8):
            was, now = owner(share, before), owner(share, after)
            assert now == was or was == lost
            assert now in after
            assert (now == share) is (share in after)


@pytest.fixture
def server() -> Iterator[ShrinkServer]:
    made = ShrinkServer(2)
    yield made
    made.close()


Connect = Callable[..., Agent]


@pytest.fixture
def worker(server: ShrinkServer) -> Iterator[Connect]:
    """Makes the connection of a rank."""
    made: list[Agent] = []

    def connect(rank: int, secret: str | None = None) -> Agent:
        port, _, own = server.address.partition(":")
        made.append(Agent(f"{port}:{own if secret is None else secret}", rank, lambda: None))
        return made[-1]

    yield connect
    for each in made:
        each.close()


@pytest.fixture
def operations(server: ShrinkServer) -> Iterator[Callable[..., Operations]]:
    """Makes the operations of rank 0 of a group in which everything works, but perhaps the barrier."""
    made: list[Operations] = []

    def make(barrier: Exception | None = None, *, other_saved: bool = False, **calls: Callable[[], None]) -> Operations:
        made.append(Operations(server.address, group(barrier, other_saved)._replace(**calls)))
        return made[-1]

    yield make
    for each in made:
        each.close()


def test_workers_are_ready_once_all_of_them_say_so(server: ShrinkServer, worker: Connect) -> None:
    first, second = worker(0), worker(1)
    first.tell(ready=True)
    assert server.state is ShrinkState.NOT_READY
    second.tell(ready=True)
    until(lambda: server.state is ShrinkState.READY)
    second.tell(problem=ShrinkState.GROUPS.value)
    until(lambda: server.state is ShrinkState.GROUPS)


def test_a_problem_of_a_newer_worker_is_no_readiness(server: ShrinkServer, worker: Connect) -> None:
    for rank in (0, 1):
        worker(rank).tell(ready=True, problem="Unheard")
    until(lambda: len(server._said) == 2 and all(each.get("ready") for each in server._said.values()))
    assert server.state is ShrinkState.NOT_READY


def test_a_worker_hears_the_word_whenever_it_connects(server: ShrinkServer, worker: Connect) -> None:
    early = worker(0)
    until(lambda: 0 in server._workers)
    server.tell(1, [0, 2])
    assert early.wait(0, 10) == GroupChange(1, (0, 2))
    assert worker(2).wait(0, 10) == GroupChange(1, (0, 2))
    assert early.wait(1, 0.01) is None


@pytest.mark.parametrize("secret", ["", "0" * 32, "é"])
def test_only_workers_of_the_round_are_heard(server: ShrinkServer, worker: Connect, secret: str) -> None:
    stranger = worker(0, secret)
    stranger.tell(ready=True)
    assert stranger.wait(0, 30) is None, "the connection has ended"
    assert server._workers == {}


def test_an_agent_that_goes_frees_its_workers(server: ShrinkServer, worker: Connect) -> None:
    left = worker(0)
    until(lambda: 0 in server._workers)
    server.close()
    assert left.wait(0, 60) is None


def group(barrier: Exception | None = None, other_saved: bool = False) -> Group:
    """A group of ranks 0 and 2 in which everything works, but perhaps the barrier; `other_saved`: rank 2's word."""

    def fail(numbers: Sequence[int]) -> Sequence[int]:
        if barrier is not None:
            raise barrier
        return [numbers[0] + other_saved, *numbers[1:]]

    return Group(
        rank=0,
        size=2,
        handle=lambda: "",
        form=lambda *_: None,
        write=lambda *_: None,
        claim=lambda *_: "",
        read=lambda *_: None,
        has=lambda *_: False,
        barrier=fail,
        leave=lambda: None,
        has_lost=lambda error: "/gloo/" in str(error),
        end=lambda: None,
    )


@pytest.mark.parametrize("error", [ValueError("shape"), RuntimeError("The size of tensor a must match")])
def test_errors_of_the_script_reach_it_at_once(operations: Callable[..., Operations], error: Exception) -> None:

    def attempt(_: bool) -> None:
        raise error

    with pytest.raises(type(error)) as raised:
        operations().run("all_reduce", attempt)
    assert raised.value is error


def test_without_a_word_the_error_of_the_connection_reaches_the_script(
    server: ShrinkServer, operations: Callable[..., Operations]
) -> None:
    lost = operations(RuntimeError("[/x/gloo/transport/tcp/pair.cc:561] Connection closed by peer"))
    until(lambda: 0 in server._workers)
    states = list[ShrinkState]()

    def on_news() -> None:
        states.append(server.state)
        server.close()

    server.on_news = on_news
    with pytest.raises(RuntimeError, match="closed by peer"):
        lost.run("barrier", lambda _: None)
    assert states == [ShrinkState.BROKEN], "the coordinator hears of it at once"


def test_a_rank_ends_if_torch_does_not_come_back_from_a_group_that_was_left(
    server: ShrinkServer, operations: Callable[..., Operations], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pytorchjob_shrink, "_STUCK_SECONDS", 0.05)
    left, ended, before = threading.Event(), threading.Event(), threading.Event()
    own = operations(leave=left.set, end=ended.set)

    def attempt(_: bool) -> None:
        before.set()
        assert ended.wait(SECONDS)

    running = threading.Thread(target=own.run, args=("all_reduce", attempt))
    running.start()
    assert before.wait(SECONDS)
    server.tell(1, [0, 2])
    assert left.wait(SECONDS)
    running.join()


def test_a_rank_that_comes_back_from_it_goes_on(
    server: ShrinkServer, operations: Callable[..., Operations], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pytorchjob_shrink, "_STUCK_SECONDS", 0.05)
    left, ended = threading.Event(), threading.Event()
    own = operations(leave=left.set, end=ended.set)
    own.run("all_reduce", lambda _: None)
    server.tell(1, [0, 2])
    assert left.wait(SECONDS)
    assert not ended.wait(0.2)


def test_an_operation_within_another_is_a_part_of_it(operations: Callable[..., Operations]) -> None:
    own, done = operations(), list[str]()
    own.run("outer", lambda _: own.run("inner", lambda _: done.append("inner")))
    assert done == ["inner"]
    assert own._finished == 1


@pytest.mark.parametrize("other_saved", [False, True])
def test_a_rank_stands_still_behind_the_save_of_any_rank_until_nobody_waits(
    server: ShrinkServer, operations: Callable[..., Operations], other_saved: bool
) -> None:
    own, states = operations(other_saved=other_saved), list[ShrinkState]()

    def on_held() -> None:
        if server.state is ShrinkState.HELD:
            states.append(server.state)
            server.tell(0, [0, 2], awaited=False)

    server.on_news = on_held
    server.tell(0, [0, 2], awaited=True)  # the change itself is done
    until(lambda: own._agent.awaited)
    if not other_saved:
        own.run("gradients", lambda _: None, steps=True)
        assert states == [], "the save before the word was too early"
        own.saved()
        own.run("barrier", lambda _: None)
        assert states == [], "other files of the save may follow"
    own.run("gradients", lambda _: None, steps=True)
    assert states == [ShrinkState.HELD]
    if not other_saved:
        own.run("gradients", lambda _: None, steps=True)
        assert states == [ShrinkState.HELD], "it was one save"


def test_saves_go_by_as_long_as_nobody_waits(server: ShrinkServer, operations: Callable[..., Operations]) -> None:
    own, news = operations(), list[int]()
    until(lambda: 0 in server._workers)
    server.on_news = lambda: news.append(1)
    own.saved()
    own.run("gradients", lambda _: None, steps=True)
    own.tell(ready=True)
    until(lambda: server._said[0].get("ready"))
    assert "held" not in server._said[0]


def test_nobody_is_waited_for_twice(server: ShrinkServer, operations: Callable[..., Operations]) -> None:
    own = operations()
    server.tell(0, [0, 2], awaited=True)
    until(lambda: own._agent.awaited)
    own._agent.hold(0, 0.01)
    assert not own._agent.awaited
