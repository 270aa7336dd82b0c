"""A rank that takes the place of a lost one comes into the group of the others between two steps."""

from functools import partial

import pytest
import torch
from torch.nn.parallel import DistributedDataParallel

from pytorchjob_agent import steps
from tests.torch.survivors import (
    BEFORE,
    BEHIND,
    ENTRY,
    INSIDE,
    Loss,
    Result,
    Run,
    batch,
    model,
    play,
    train_with_returns,
)

pytestmark = pytest.mark.torch


def undisturbed(size: int, total: int) -> torch.Tensor:
    """The parameters of the same training without any loss, computed by one process."""
    own = model()
    optimizer = torch.optim.Adam(own.parameters(), lr=0.01)
    for step in range(total):
        optimizer.zero_grad()
        for rank in range(size):
            (own(batch(step, rank)).square().mean() / size).backward()
        optimizer.step()
    return torch.cat([each.detach().reshape(-1) for each in own.parameters()])


def check(run: Run, size: int) -> None:
    """All ranks are there, equal to the bit, and have computed what an undisturbed run computes."""
    assert [each.error for each in run.survivors] == [""] * size
    values = [torch.tensor(each.parameters, dtype=torch.float64) for each in run.survivors]
    assert all(torch.equal(values[0], each) for each in values)
    assert [each.sizes[-1] for each in run.survivors] == [size] * size
    total = max(len(each.sizes) for each in run.survivors)
    torch.testing.assert_close(values[0], undisturbed(size, total), rtol=1e-7, atol=1e-10)


@pytest.mark.parametrize("moment", [BEFORE, INSIDE, BEHIND])
@pytest.mark.parametrize("lost", [1, 2])
def test_a_rank_comes_back_between_two_steps(lost: int, moment: str) -> None:
    run = play(3, [Loss(lost, 5, moment)], train_with_returns, returns=True)
    check(run, 3)
    [back] = [each for each in run.survivors if each.rank == lost]
    others = [each for each in run.survivors if each.rank != lost]
    assert len(back.sizes) < len(others[0].sizes) == len(others[1].sizes)
    assert 2 in others[0].sizes, "the others went on meanwhile"


@pytest.mark.parametrize("options", [{"gradient_as_bucket_view": True}, {"find_unused_parameters": True}])
def test_models_with_other_options(options: dict[str, object]) -> None:
    check(play(3, [Loss(1, 5, INSIDE)], partial(train_with_returns, **options), returns=True), 3)


def test_the_others_go_on_without_a_rank_that_is_lost_again_on_its_way() -> None:
    losses = [Loss(1, 5, INSIDE), Loss(1, ENTRY, BEFORE)]
    run = play(3, losses, partial(train_with_returns, most=150), returns=True)
    assert [(each.rank, each.error, len(each.sizes), each.sizes[-1]) for each in run.survivors] == [
        (0, "", 150, 2),
        (2, "", 150, 2),
    ]
    first, second = (torch.tensor(each.parameters, dtype=torch.float64) for each in run.survivors)
    assert torch.equal(first, second)
    torch.testing.assert_close(first, undisturbed(3, 150), rtol=1e-7, atol=1e-10)


def test_a_rank_that_is_lost_while_the_group_takes_it_in_costs_a_round() -> None:
    """Until the next backward pass has ended, nothing can be repeated; no rank computes anything wrong."""
    run = play(3, [Loss(1, 5, INSIDE), Loss(1, ENTRY, INSIDE)], train_with_returns, returns=True)
    assert [each.rank for each in run.survivors if "RuntimeError" in each.error or "ShrinkError" in each.error] == [
        0,
        2,
    ]


def counting(rank: int) -> Result:
    ddp = DistributedDataParallel(model())
    return list(steps(range(2, 6), ddp)), [], 0.0


def test_without_a_loss_they_are_the_numbers_of_the_range() -> None:
    assert [each.sizes for each in play(2, [], counting).survivors] == [[2, 3, 4, 5]] * 2


def test_outside_of_a_job_they_are_the_numbers_of_the_range() -> None:
    assert list(steps(range(3, 9, 2))) == [3, 5, 7]
    with pytest.raises(TypeError, match="steps: int has no state_dict and load_state_dict"):
        list(steps(range(3), 5))
