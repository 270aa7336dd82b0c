"""Trains a small language model with Hugging Face's Trainer: a script that knows nothing of jobs or of the agent.

It reads this very file, byte by byte, so it downloads nothing.

environment: CHECKPOINT_DIR (no checkpoints without it), STEPS
"""

import os
import tempfile
from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments, set_seed
from transformers.trainer_utils import get_last_checkpoint

LENGTH = 64
FOLDER = os.environ.get("CHECKPOINT_DIR")
STEPS = int(os.environ.get("STEPS", "60"))


def rows() -> list[dict[str, torch.Tensor]]:
    """Return pieces of the text, each as inputs and labels."""
    text = torch.tensor(list(Path(__file__).read_bytes()))
    pieces = [text[start : start + LENGTH] for start in range(0, len(text) - LENGTH, LENGTH // 4)]
    return [{"input_ids": piece, "labels": piece} for piece in pieces]


def main() -> None:
    """Train from the last checkpoint, if there is one."""
    set_seed(7)  # before the model, so that each run learns the same
    config = LlamaConfig(
        vocab_size=256,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        bos_token_id=0,
        eos_token_id=0,
    )
    arguments = TrainingArguments(
        FOLDER or tempfile.mkdtemp(),
        max_steps=STEPS,
        per_device_train_batch_size=4,
        learning_rate=3e-3,
        logging_steps=5,
        save_strategy="steps" if FOLDER else "no",
        save_steps=20,
        save_total_limit=2,
        use_cpu=not torch.cuda.is_available(),
        ddp_find_unused_parameters=False,
        report_to="none",
    )
    trainer = Trainer(LlamaForCausalLM(config), arguments, train_dataset=rows())
    last = get_last_checkpoint(FOLDER) if FOLDER and os.path.isdir(FOLDER) else None
    print(f"rank={arguments.process_index} world_size={arguments.world_size} resumes from {last}", flush=True)
    trainer.train(resume_from_checkpoint=last)


if __name__ == "__main__":
    main()
