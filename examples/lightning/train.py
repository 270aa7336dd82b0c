"""Learns digits with Lightning: a script that knows nothing of jobs or of the agent.

Lightning finds the ranks in the environment that torchrun and pytorchjob-agent set.

environment: CHECKPOINT_DIR (no checkpoints without it), EPOCHS
"""

import os

import lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

FOLDER = os.environ.get("CHECKPOINT_DIR")
EPOCHS = int(os.environ.get("EPOCHS", "10"))


class Digits(lightning.LightningModule):
    """A small network for images of 8 x 8 pixels."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))

    def training_step(self, batch: list[Tensor], index: int) -> Tensor:
        loss = nn.functional.cross_entropy(self.net(batch[0]), batch[1])
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch: list[Tensor], index: int) -> None:
        right = (self.net(batch[0]).argmax(1) == batch[1]).float().mean()
        self.log("accuracy", right, sync_dist=True)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=3e-3)


def main() -> None:
    """Train from the last checkpoint, if there is one."""
    lightning.seed_everything(7, verbose=False)
    digits = load_digits()
    x, y = torch.tensor(digits.data, dtype=torch.float32) / 16, torch.tensor(digits.target)
    train = DataLoader(TensorDataset(x[:1500], y[:1500]), batch_size=25, shuffle=True)
    test = DataLoader(TensorDataset(x[1500:], y[1500:]), batch_size=33)
    trainer = lightning.Trainer(
        max_epochs=EPOCHS,
        num_nodes=int(os.environ.get("GROUP_WORLD_SIZE", "1")),
        devices=int(os.environ.get("LOCAL_WORLD_SIZE", "1")),
        logger=False,
        log_every_n_steps=5,
        enable_checkpointing=FOLDER is not None,
        callbacks=[ModelCheckpoint(FOLDER, save_last=True)] if FOLDER else [],
    )
    trainer.fit(Digits(), train, test, ckpt_path="last" if FOLDER else None)
    if trainer.is_global_zero:
        accuracy = float(trainer.callback_metrics["accuracy"])
        print(f"world_size={trainer.world_size} accuracy={accuracy:.3f}", flush=True)


if __name__ == "__main__":
    main()
