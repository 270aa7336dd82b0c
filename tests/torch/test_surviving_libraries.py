"""Trainings as people write them with accelerate, Lightning and the Hugging Face Trainer go on without a lost rank."""

import importlib.util
import os
import tempfile
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
import torch.distributed as dist

from tests.torch.survivors import BEFORE, BEHIND, INSIDE, Loss, Result, Script, batch, model, play

pytestmark = [pytest.mark.torch]
STEPS, RANKS = 10, 3


def _values(own: Any) -> list[float]:
    return list(torch.cat([each.detach().reshape(-1).double() for each in own.parameters()]).tolist())


def with_accelerate(rank: int) -> Result:
    """A loop with `accelerator.backward`, and a metric that is gathered in the end."""
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    own, sizes = model(), []
    ddp, optimizer = accelerator.prepare(own, torch.optim.SGD(own.parameters(), lr=0.05))
    for step in range(STEPS):
        optimizer.zero_grad()
        accelerator.backward(ddp(batch(step, rank)).square().mean())
        optimizer.step()
        sizes.append(dist.get_world_size())
    return sizes, _values(own), 0.0


def with_lightning(rank: int) -> Result:
    """A LightningModule and a Trainer."""
    import lightning
    from torch.utils.data import DataLoader

    sizes: list[int] = []

    class Own(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = model()

        def training_step(self, data: Any, _: int) -> Any:
            return self.net(data).square().mean()

        def on_train_batch_end(self, *_: Any) -> None:
            sizes.append(dist.get_world_size())

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.05)

    own = Own()
    data = [batch(step, rank)[0] for step in range(8 * STEPS)]
    size = int(os.environ["WORLD_SIZE"])
    trainer = lightning.Trainer(
        accelerator="cpu",
        strategy="ddp",
        devices=1,
        num_nodes=size,
        max_epochs=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        use_distributed_sampler=False,
    )
    trainer.fit(own, DataLoader(data, batch_size=8))
    return sizes, _values(own.net), 0.0


def with_hugging_face(rank: int) -> Result:
    """The Trainer of transformers, without a save."""
    from transformers import Trainer, TrainerCallback, TrainingArguments

    sizes: list[int] = []

    class Own(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = model().float()

        def forward(self, x: Any) -> dict[str, Any]:
            return {"loss": self.net(x).square().mean()}

    class Sizes(TrainerCallback):
        def on_step_end(self, *_: Any, **__: Any) -> None:
            sizes.append(dist.get_world_size())

    own = Own()
    data = [{"x": batch(step, 0)[0].float()} for step in range(8 * STEPS * int(os.environ["WORLD_SIZE"]))]
    with tempfile.TemporaryDirectory() as name:
        arguments = TrainingArguments(
            name, use_cpu=True, max_steps=STEPS, save_strategy="no", report_to=[], disable_tqdm=True, learning_rate=0.05
        )
        Trainer(model=own, args=arguments, train_dataset=data, callbacks=[Sizes()]).train()
    del rank
    return sizes, _values(own), 0.0


def reference(sizes: Sequence[int], lost: int, data: Callable[[int, int], Any]) -> Any:
    """The parameters of the same training in one process, with the batches of the ranks that took part."""
    own = model()
    optimizer = torch.optim.SGD(own.parameters(), lr=0.05)
    for step, size in enumerate(sizes):
        optimizer.zero_grad()
        ranks = [rank for rank in range(RANKS) if size == RANKS or rank != lost]
        for rank in ranks:
            (own(data(step, rank)).square().mean() / len(ranks)).backward()
        optimizer.step()
    return torch.tensor(_values(own), dtype=torch.float64)


def of_lightning(step: int, rank: int) -> Any:
    """The batch that its loader makes of a rank's data."""
    return torch.stack([batch(8 * step + row, rank)[0] for row in range(8)])


def library(name: str, script: Script, data: Callable[[int, int], Any] | None) -> Any:
    """A row for a script of a library that is not always there; `data`: the batch of a step and a rank, if known."""
    missing = importlib.util.find_spec(name) is None
    return pytest.param(
        script, data, marks=pytest.mark.skipif(missing, reason=f"{name} is not installed: run `make libraries`")
    )


LIBRARIES = [
    library("accelerate", with_accelerate, batch),
    library("lightning", with_lightning, of_lightning),
    library("transformers", with_hugging_face, None),  # it shuffles
]


@pytest.mark.long
@pytest.mark.parametrize(("script", "data"), LIBRARIES)
@pytest.mark.parametrize("moment", [BEFORE, INSIDE, BEHIND])
@pytest.mark.parametrize("operation", [4, 6])
def test_scripts_of_libraries_go_on_as_they_are(
    script: Script, data: Callable[[int, int], Any] | None, operation: int, moment: str
) -> None:
    if moment == BEHIND and script is with_hugging_face:
        pytest.skip("its next collective gathers from all ranks, which cannot be repeated without one: a round follows")
    run = play(RANKS, [Loss(1, operation, moment)], script)
    assert [each.error for each in run.survivors] == ["", ""]
    assert [len(each.sizes) for each in run.survivors] == [STEPS, STEPS]
    assert [each.sizes[-1] for each in run.survivors] == [2, 2]
    assert run.survivors[0].parameters == run.survivors[1].parameters
    if data is not None:
        found = torch.tensor(run.survivors[0].parameters, dtype=torch.float64)
        torch.testing.assert_close(found, reference(run.survivors[0].sizes, 1, data), rtol=1e-9, atol=1e-12)
