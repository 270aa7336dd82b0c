"""The ranks that go on do the shares of a lost one: what they compute is what all ranks would have computed."""

from collections.abc import Sequence
from functools import partial

import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from pytorchjob_agent import shares
from tests.torch.survivors import (
    BEFORE,
    BEHIND,
    CUT,
    INSIDE,
    POSSIBLE,
    Loss,
    Result,
    Run,
    batch,
    play,
    reference,
    train,
)

pytestmark = [pytest.mark.torch]
STEPS = 12


def check(run: Run, size: int, lost: int) -> None:
    """Equal to the bit among the ranks, and equal to an undisturbed run as far as sums in another order are."""
    assert [each.error for each in run.survivors] == [""] * (size - lost)
    values = [torch.tensor(each.parameters, dtype=torch.float64) for each in run.survivors]
    assert all(torch.equal(values[0], each) for each in values)
    undisturbed = torch.tensor(reference([range(size)] * STEPS), dtype=torch.float64)
    torch.testing.assert_close(values[0], undisturbed, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("moment", [BEFORE, INSIDE, BEHIND])
@pytest.mark.parametrize(("lost", "operation"), [(1, 1), (1, 2), (2, 3), (1, 4), (2, 5), (2, 6), (1, 7), (2, 8)])
def test_the_batch_is_whole_whatever_the_lost_rank_did(lost: int, operation: int, moment: str) -> None:
    check(play(3, [Loss(lost, operation, moment)], partial(train, constant=True)), 3, 1)


@pytest.mark.parametrize("operation", [1, 2, 4, 5, 6, 7, 9])
def test_a_rank_that_takes_a_result_knows_what_is_in_it(operation: int) -> None:
    check(play(3, [Loss(1, operation, BEHIND), Loss(2, operation, CUT)], partial(train, constant=True)), 3, 1)


@pytest.mark.parametrize(
    "losses",
    [
        pytest.param([Loss(1, 4, INSIDE), Loss(3, 4, INSIDE)], id="together"),
        pytest.param([Loss(1, 4, INSIDE), Loss(3, 5, INSIDE)], id="while its share is made up for"),
        pytest.param([Loss(1, 4, INSIDE), Loss(3, 5, BEHIND)], id="behind that"),
        pytest.param([Loss(1, 1, INSIDE), Loss(2, 8, BEFORE)], id="one after the other"),
        pytest.param([Loss(1, 2, BEHIND), Loss(2, 6, INSIDE), Loss(3, 9, BEFORE)], id="all but rank 0"),
    ],
)
def test_several_ranks_are_lost(losses: Sequence[Loss]) -> None:
    check(play(4, losses, partial(train, constant=True)), 4, len(losses))


@pytest.mark.parametrize("moment", [BEFORE, INSIDE, BEHIND])
@pytest.mark.parametrize("options", [{"gradient_as_bucket_view": True}, {"find_unused_parameters": True}])
def test_models_with_other_options(options: dict[str, object], moment: str) -> None:
    check(play(3, [Loss(1, 4, moment)], partial(train, constant=True, **options)), 3, 1)


def with_buffers(rank: int) -> Result:
    """Rank 0 sends its buffers before a forward pass."""
    torch.manual_seed(0)
    own = torch.nn.Sequential(torch.nn.Linear(16, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 4)).double()
    ddp = DistributedDataParallel(own)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.05)
    for step in range(STEPS):
        optimizer.zero_grad()
        for share in shares(ddp):
            ddp(batch(step, share)).square().mean().backward()
        optimizer.step()
    values = [each.detach().reshape(-1) for each in own.parameters()]
    return [dist.get_world_size()], torch.cat(values).tolist(), 0.0


@pytest.mark.parametrize("operation", [3, 4, 5, 6, 7])
def test_buffers_are_sent_by_all_or_none(operation: int) -> None:
    lost = play(3, [Loss(1, operation, INSIDE)], with_buffers)
    whole = play(3, [], with_buffers)
    assert [each.error for each in (*lost.survivors, *whole.survivors)] == [""] * 5
    values = [torch.tensor(each.parameters, dtype=torch.float64) for each in (*lost.survivors, whole.survivors[0])]
    assert torch.equal(values[0], values[1])
    torch.testing.assert_close(values[0], values[2], rtol=1e-9, atol=1e-12)


def within_no_sync(rank: int) -> Result:
    ddp = DistributedDataParallel(torch.nn.Linear(16, 4).double())
    with ddp.no_sync():
        for share in shares(ddp):
            ddp(batch(0, share)).mean().backward()
    return [], [], 0.0


def of_another_model(rank: int) -> Result:
    return [], [float(share) for share in shares(torch.nn.Linear(1, 1))], 0.0


@pytest.mark.skipif(not POSSIBLE, reason="this torch cannot change a group")
@pytest.mark.parametrize(
    ("script", "error"),
    [
        (
            within_no_sync,
            "RuntimeError: shares: it was called within no_sync(), so what a lost rank has added would be lost",
        ),
        (of_another_model, "TypeError: shares: Linear is no DistributedDataParallel model"),
    ],
)
def test_what_cannot_be_made_up_for_is_refused(script: object, error: str) -> None:
    assert [each.error for each in play(2, [], script).survivors] == [error] * 2


def test_without_an_agent_each_rank_does_its_own_share() -> None:
    run = play(3, [], partial(train, constant=True), without=1)
    check(run, 3, 0)
    assert list(shares(torch.nn.Linear(1, 1))) == [0], "and a process alone the only one"
