"""Ranks go on without a lost one: what they compute is what the ranks that took part would have computed alone."""

import copy
import io
from collections.abc import Sequence
from functools import partial

import pytest
import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel

from pytorchjob_agent.contract.reasons import ShrinkState
from tests.torch.survivors import (
    BEFORE,
    BEHIND,
    CUT,
    INSIDE,
    POSSIBLE,
    Loss,
    Result,
    Run,
    Script,
    batch,
    model,
    play,
    reference,
    train,
)

pytestmark = [pytest.mark.torch]
SIZE = 3


def taking_part(run: Run, lost: int) -> list[Sequence[int]]:
    """Who took part in each step: a rank that has passed the barrier before the change knows the old size."""
    rest = [rank for rank in range(SIZE) if rank != lost]
    sizes = zip(*(each.sizes for each in run.survivors), strict=True)
    return [range(SIZE) if max(each) == SIZE else rest for each in sizes]


def check(run: Run, lost: int) -> None:
    """Equal to the bit among the ranks, and equal to the reference as far as sums in another order are."""
    assert [each.error for each in run.survivors] == [""] * (SIZE - 1)
    first, second = (torch.tensor(each.parameters, dtype=torch.float64) for each in run.survivors)
    assert torch.equal(first, second)
    alone = torch.tensor(reference(taking_part(run, lost)), dtype=torch.float64)
    torch.testing.assert_close(first, alone, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("moment", [BEFORE, INSIDE, BEHIND])
@pytest.mark.parametrize(("lost", "operation"), [(1, 2), (2, 3), (1, 4), (2, 5), (1, 7), (0, 9)])
def test_nothing_is_lost_or_repeated_whatever_the_lost_rank_did(lost: int, operation: int, moment: str) -> None:
    check(play(SIZE, [Loss(lost, operation, moment)]), lost)


@pytest.mark.parametrize("operation", [3, 4, 5, 6, 8, 9])
def test_a_rank_takes_a_result_that_another_one_has_handed_out_already(operation: int) -> None:
    check(play(SIZE, [Loss(1, operation, BEHIND), Loss(2, operation, CUT)]), 1)


@pytest.mark.parametrize("moment", [BEFORE, INSIDE, BEHIND])
@pytest.mark.parametrize(("lost", "operation"), [(1, 2), (2, 5), (1, 7), (0, 9)])
def test_a_group_that_torch_revokes_goes_on_too(lost: int, operation: int, moment: str) -> None:
    """NCCL's way by gloo's interfaces, which are the same; what NCCL itself does is shown on a GPU."""
    check(play(SIZE, [Loss(lost, operation, moment)], revoked=True), lost)


def test_a_rank_with_a_revoked_group_takes_a_result_that_another_one_has() -> None:
    check(play(SIZE, [Loss(1, 6, BEHIND), Loss(2, 6, CUT)], revoked=True), 1)


def test_a_second_rank_is_lost_while_the_group_changes() -> None:
    run = play(4, [Loss(1, 6, BEFORE), Loss(2, 6, INSIDE)])
    assert [(each.rank, each.error) for each in run.survivors] == [(0, ""), (3, "")]
    assert run.survivors[0].parameters == run.survivors[1].parameters
    assert run.survivors[0].sizes[-1] == 2


@pytest.mark.parametrize(
    ("losses", "why"),
    [
        pytest.param([Loss(0, 6, BEFORE)], "has its input at rank 0", id="the root of a broadcast"),
    ],
)
def test_what_cannot_be_repeated_reaches_the_script_as_an_error(losses: list[Loss], why: str) -> None:
    run = play(SIZE, losses)
    assert all(why in each.error or "connection" in each.error.lower() for each in run.survivors)


OPTIONS = [
    pytest.param({"gradient_as_bucket_view": True}, id="gradients that are views of the buckets"),
    pytest.param({"bucket_cap_mb": 0.001}, id="many buckets"),
]


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("moment", [BEFORE, INSIDE, BEHIND])
def test_models_with_other_options(options: dict[str, object], moment: str) -> None:
    check(play(SIZE, [Loss(1, 6, moment)], partial(train, **options)), 1)


@pytest.mark.parametrize("moment", [BEFORE, INSIDE])
def test_a_model_that_looks_for_unused_parameters(moment: str) -> None:
    """Behind the barrier torch reduces a map of them by itself, so that a loss there is a new round."""
    check(play(SIZE, [Loss(1, 6, moment)], partial(train, find_unused_parameters=True)), 1)


def normalizing(rank: int) -> Result:
    """A model with buffers, which rank 0 sends before each forward pass."""
    own = torch.nn.Sequential(model(), torch.nn.BatchNorm1d(4).double())
    ddp = DistributedDataParallel(own)
    optimizer, sizes = torch.optim.SGD(ddp.parameters(), lr=0.05), []
    for step in range(12):
        optimizer.zero_grad()
        (ddp(batch(step, rank)) - 1).square().mean().backward()
        optimizer.step()
        sizes.append(dist.get_world_size())
    state = torch.cat([each.detach().reshape(-1).double() for each in own.parameters()])
    return sizes, state.tolist(), 0.0


@pytest.mark.parametrize("operation", [4, 5, 6, 7])
@pytest.mark.parametrize("moment", [BEFORE, INSIDE, BEHIND])
def test_buffers_are_sent_again(operation: int, moment: str) -> None:
    run = play(SIZE, [Loss(1, operation, moment)], normalizing)
    assert [each.error for each in run.survivors] == ["", ""]
    assert run.survivors[0].parameters == run.survivors[1].parameters
    assert [each.sizes[-1] for each in run.survivors] == [2, 2]


def with_a_group(rank: int) -> Result:
    """A second process group, as FSDP and tensor parallelism make them."""
    dist.new_group([0, 1, 2])
    return train(rank)


def with_a_hook(rank: int) -> Result:
    """A communication hook of its own."""
    own = model()
    ddp = DistributedDataParallel(own)
    ddp.register_comm_hook(None, default_hooks.allreduce_hook)
    for step in range(12):
        ddp(batch(step, rank)).square().mean().backward()
    return [], [], 0.0


def with_uneven_batches(rank: int) -> Result:
    """Ranks with unequal numbers of batches, as `join` allows them."""
    ddp = DistributedDataParallel(model())
    with ddp.join():
        for step in range(6 + rank):
            ddp(batch(step, rank)).square().mean().backward()
    return [6 + rank], [], 0.0


def with_a_static_graph(rank: int) -> Result:
    """A promise that each step uses the same parameters."""
    return train(rank, static_graph=True)


def with_a_compiled_model(rank: int) -> Result:
    """torch.compile around DistributedDataParallel, which it traces through."""
    ddp = torch.compile(DistributedDataParallel(model()), backend="eager")
    for step in range(3):
        ddp(batch(step, rank)).square().mean().backward()
    return [], [], 0.0


def with_a_compiled_module(rank: int) -> Result:
    """torch.compile below DistributedDataParallel, as torch recommends it."""
    own, sizes = model(), []
    ddp = DistributedDataParallel(torch.compile(own, backend="eager"))
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.05)
    for step in range(12):
        optimizer.zero_grad()
        ddp(batch(step, rank)).square().mean().backward()
        optimizer.step()
        sizes.append(dist.get_world_size())
    return sizes, torch.cat([each.detach().reshape(-1) for each in own.parameters()]).tolist(), 0.0


def test_a_compiled_module_goes_on() -> None:
    run = play(SIZE, [Loss(1, 5, INSIDE)], with_a_compiled_module)
    assert [each.error for each in run.survivors] == ["", ""]
    assert [each.sizes[-1] for each in run.survivors] == [2, 2]
    assert run.survivors[0].parameters == run.survivors[1].parameters


def joining_late(rank: int) -> Result:
    """Uneven batches after some even ones."""
    ddp = DistributedDataParallel(model())
    for step in range(3):
        ddp(batch(step, rank)).square().mean().backward()
    with ddp.join():
        for step in range(3 + rank):
            ddp(batch(step, rank)).square().mean().backward()
    return [3 + rank], [], 0.0


def evaluating_first(rank: int) -> Result:
    """Rank 0 alone runs the model before the training."""
    own = model()
    ddp = DistributedDataParallel(own)
    if rank == 0:
        with torch.no_grad():
            ddp(batch(0, 0))
    dist.barrier()
    ddp(batch(0, rank)).square().mean().backward()
    return [], [], 0.0


def with_sparse_gradients(rank: int) -> Result:
    """An embedding whose gradients have few rows."""
    ddp = DistributedDataParallel(torch.nn.Embedding(10, 4, sparse=True))
    for step in range(4):
        ddp(torch.tensor([step, rank])).square().mean().backward()
    return [], [], 0.0


def copying(rank: int) -> Result:
    """A copy of the model, as averages of models make them, and a saved one."""
    ddp = DistributedDataParallel(model())
    for step in range(3):
        ddp(batch(step, rank)).square().mean().backward()
    copy.deepcopy(ddp)
    torch.save(ddp, io.BytesIO())
    return [], [], 0.0


@pytest.mark.parametrize("script", [joining_late, evaluating_first, with_sparse_gradients, copying])
def test_what_scripts_may_do_they_may_still_do(script: Script) -> None:
    assert [each.error for each in play(SIZE, [], script).survivors] == [""] * SIZE


def telling(rank: int) -> Result:
    """Each second broadcast is rank 2's, by the number that it had at the beginning."""
    ddp = DistributedDataParallel(model())
    for step in range(6):
        ddp(batch(step, rank)).square().mean().backward()
        word = torch.full((2,), float(rank))
        dist.broadcast(word, 2)
        assert word.tolist() == [2.0, 2.0]
    return [], [], 0.0


@pytest.mark.parametrize("moment", [BEFORE, INSIDE, BEHIND])
@pytest.mark.parametrize("operation", [2, 3, 4])
def test_a_rank_with_another_number_is_never_taken_for_another(operation: int, moment: str) -> None:
    run = play(4, [Loss(1, operation, moment)], telling)
    assert all(each.error.startswith(("ShrinkError", "RuntimeError")) for each in run.survivors)


def catching(rank: int) -> Result:
    """A script that catches the error of a collective, which it does not get to see."""
    try:
        return train(rank)
    except RuntimeError:
        return [-1], [], 0.0


@pytest.mark.parametrize(
    ("script", "why"),
    [
        (with_a_group, ShrinkState.GROUPS),
        (with_a_hook, ShrinkState.HOOK),
        (with_uneven_batches, ShrinkState.MODEL),
        (with_a_static_graph, ShrinkState.MODEL),
        (with_a_compiled_model, ShrinkState.COMPILED),
    ],
)
def test_what_is_not_supported_runs_as_without_us_and_says_so(script: Script, why: ShrinkState) -> None:
    run = play(SIZE, [], script)
    assert [each.error for each in run.survivors] == [""] * SIZE
    assert set(run.states) <= ({why} if POSSIBLE else {why, ShrinkState.TORCH})


def test_a_script_that_catches_errors_sees_none() -> None:
    check(play(SIZE, [Loss(1, 6, INSIDE)], catching), 1)


def test_a_rank_without_an_agent_that_knows_it_keeps_all_from_it() -> None:
    run = play(SIZE, [], train, without=1)
    assert [each.error for each in run.survivors] == [""] * SIZE
    assert [run.states[0], run.states[2]] == [ShrinkState.NOT_READY if POSSIBLE else ShrinkState.TORCH] * 2


def accumulating(rank: int) -> Result:
    """Gradients of two batches are one step."""
    own = model()
    ddp = DistributedDataParallel(own)
    optimizer, sizes = torch.optim.SGD(ddp.parameters(), lr=0.05, momentum=0.9), []
    for step in range(12):
        optimizer.zero_grad()
        with ddp.no_sync():
            (ddp(batch(step, rank + 10)).square().mean() / 2).backward()
        (ddp(batch(step, rank)).square().mean() / 2).backward()
        optimizer.step()
        sizes.append(dist.get_world_size())
    return sizes, torch.cat([each.detach().reshape(-1) for each in own.parameters()]).tolist(), 0.0


def test_accumulated_gradients_are_repeated_whole() -> None:
    run = play(SIZE, [Loss(2, 5, INSIDE)], accumulating)
    assert [each.error for each in run.survivors] == ["", ""]
    assert run.survivors[0].parameters == run.survivors[1].parameters
    own = model()
    optimizer = torch.optim.SGD(own.parameters(), lr=0.05, momentum=0.9)
    for step, ranks in enumerate(taking_part(run, 2)):
        optimizer.zero_grad()
        for rank in ranks:
            for share in (rank + 10, rank):
                (own(batch(step, share)).square().mean() / 2 / len(ranks)).backward()
        optimizer.step()
    alone = torch.cat([each.detach().reshape(-1) for each in own.parameters()])
    torch.testing.assert_close(
        torch.tensor(run.survivors[0].parameters, dtype=torch.float64), alone, rtol=1e-9, atol=1e-12
    )
