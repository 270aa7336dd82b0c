"""What lines show of a training's progress, and what they do not show."""

from typing import Any

import pytest

from pytorchjob_agent.observers.progress_lines import MAY_SHOW, LineReader
from pytorchjob_agent.script.observation import Observation


def bar(name: str, done: int, total: int, rest: str = "00:05<00:07, 8.10it/s") -> str:
    """A state of a bar as tqdm draws it."""
    return f"{name}{': ' if name else ''}{100 * done // total:3d}%|████▏     | {done}/{total} [{rest}]"


def read(*lines: str) -> Observation:
    reader = LineReader()
    for line in lines:
        assert MAY_SHOW.search(line.encode()) or LineReader().found == _after(line), "no line is dropped that shows it"
        reader.take(line)
    return reader.found


def _after(line: str) -> Observation:
    reader = LineReader()
    reader.take(line)
    return reader.found


def shown(**values: Any) -> Observation:
    return Observation(**values)


NOTHING = Observation()


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        pytest.param(
            [bar("Steps", 42, 100, "00:05<01:07, 8.10it/s, lr=0.0001, step_loss=0.25")],
            shown(step=42, total=100, percent=42, remaining=67, metrics={"loss": 0.25}),
            id="a bar of all steps",
        ),
        pytest.param(
            [bar("Steps", 42, 100, "1:00:05<2:00:07, 1.2s/it")],
            shown(step=42, total=100, percent=42, remaining=7207),
            id="hours",
        ),
        pytest.param(
            [bar("Steps", 0, 100, "00:00<?, ?it/s")], shown(step=0, total=100, percent=0), id="a bar that begins"
        ),
        pytest.param(
            [bar("Epoch 3/10", 50, 100, "00:05<00:07, 8.1it/s, loss=0.5")],
            shown(step=250, total=1000, percent=25, metrics={"epoch": 3.0, "loss": 0.5}),
            id="a bar of one part of ten",
        ),
        pytest.param(
            [bar("Epoch 0/10", 50, 100), bar("Epoch 3/10", 50, 100)],
            shown(step=350, total=1000, percent=35, metrics={"epoch": 3.0}),
            id="the parts count from zero",
        ),
        pytest.param(
            [bar("Epoch [10/10]", 100, 100)],
            shown(step=1000, total=1000, percent=100, metrics={"epoch": 10.0}),
            id="the end",
        ),
        pytest.param(
            [bar("Epoch 3", 50, 100, "00:05<00:07, 8.1it/s, v_num=0, train_loss=0.5")],
            shown(metrics={"epoch": 3.0, "loss": 0.5}),
            id="of how many is unknown: the share is, too",
        ),
        pytest.param([bar("Epochs", 3, 10)], shown(percent=30, remaining=7), id="a bar that counts parts"),
        pytest.param([bar("Training", 3, 10)], NOTHING, id="of the whole job, or of a part of it?"),
        pytest.param(
            [bar("", 3, 10, "00:01<00:02, 8it/s, loss=0.7")], shown(metrics={"loss": 0.7}), id="a loss makes it one"
        ),
        pytest.param([bar("", 3, 10)], NOTHING, id="a bar without a name may be anything"),
        pytest.param([bar("Validation Epoch 1/2", 3, 10)], NOTHING, id="an evaluation"),
        pytest.param([bar("Validation DataLoader 0", 3, 10, "0<1, 8it/s, loss=0.7")], NOTHING, id="with a loss"),
        pytest.param([bar("eval steps", 3, 10)], NOTHING, id="steps of an evaluation"),
        pytest.param([bar("Testing", 3, 10)], NOTHING, id="a test"),
        pytest.param([bar("Sanity Checking", 3, 10)], NOTHING, id="a check"),
        pytest.param([bar("Generating train split", 3, 10, "0<1, 80 examples/s")], NOTHING, id="a data set"),
        pytest.param([bar("Loading checkpoint shards", 3, 10)], NOTHING, id="a model that is loaded"),
        pytest.param([bar("Downloading iterations.bin", 3, 10)], NOTHING, id="a download"),
        pytest.param(
            [bar("Steps", 42, 100), bar("Evaluating steps", 3, 10), bar("Validation", 9, 10)],
            shown(step=42, total=100, percent=42, remaining=7),
            id="an evaluation between steps changes nothing",
        ),
        pytest.param(
            [bar("Steps", 90, 100), bar("Steps", 10, 100)], NOTHING, id="a count that starts again was a part's"
        ),
        pytest.param(
            [bar("Steps", 90, 100), bar("Steps", 95, 200), bar("Steps", 99, 100)], NOTHING, id="two bars, one name"
        ),
    ],
)
def test_bars(lines: list[str], expected: Observation) -> None:
    assert read(*lines) == expected


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        pytest.param(
            ["step 120/1000 loss 0.53"],
            shown(step=120, total=1000, percent=12, metrics={"loss": 0.53}),
            id="a step of all steps",
        ),
        pytest.param(
            ["INFO Step: 120 of 1000 | loss: 5.3e-1 | lr: 1e-4"],
            shown(step=120, total=1000, percent=12, metrics={"loss": 0.53}),
            id="with other words",
        ),
        pytest.param(
            [" iteration      100/  500000 | elapsed time per iteration (ms): 123.4 | lm loss: 6.1E+00 |"],
            shown(step=100, total=500000, percent=0, metrics={"loss": 6.1}),
            id="of Megatron",
        ),
        pytest.param(
            ["iter 100: loss 2.31, time 12.1ms, mfu 3%"], shown(step=100, metrics={"loss": 2.31}), id="of nanoGPT"
        ),
        pytest.param(
            ["step 250: train loss 1.9, val loss 2.0"], shown(step=250, metrics={"loss": 1.9}), id="the training's loss"
        ),
        pytest.param(
            ["step 250: val loss 2.0, train loss 1.9"], shown(step=250, metrics={"loss": 1.9}), id="in any order"
        ),
        pytest.param(
            ["[titan] step: 10  loss:  7.11  grad_norm: 2.1  memory: 1.2GiB(3%)  tps: 1,234"],
            shown(step=10, metrics={"loss": 7.11}),
            id="of torchtitan",
        ),
        pytest.param(
            ["Epoch [3/10], Step [50/100], Loss: 0.5319"],
            shown(step=250, total=1000, percent=25, metrics={"epoch": 3.0, "loss": 0.5319}),
            id="of the tutorials",
        ),
        pytest.param(
            ["Epoch 3/10", "step 50/100 loss 0.5"],
            shown(step=250, total=1000, percent=25, metrics={"epoch": 3.0, "loss": 0.5}),
            id="a headline names the part",
        ),
        pytest.param(
            ["Epoch 3", "step 50/100 loss 0.5"],
            shown(metrics={"epoch": 3.0, "loss": 0.5}),
            id="a headline without their number",
        ),
        pytest.param(
            ["Train Epoch: 3 [6400/60000 (11%)]\tLoss: 0.531900"],
            shown(metrics={"epoch": 3.0, "loss": 0.5319}),
            id="of the MNIST example",
        ),
        pytest.param(
            ["epoch 4/10 - loss: 0.5 - accuracy: 0.9"],
            shown(percent=30, metrics={"epoch": 4.0, "loss": 0.5}),
            id="three of ten parts are over in any case",
        ),
        pytest.param(
            ["{'loss': 0.53, 'grad_norm': 1.2, 'learning_rate': 5e-05, 'epoch': 0.3}"],
            shown(metrics={"loss": 0.53}),
            id="of Hugging Face",
        ),
        pytest.param(["{'eval_loss': 0.4, 'epoch': 1.0}"], NOTHING, id="its evaluation"),
        pytest.param(["Epoch 3/10 val loss 0.4"], NOTHING, id="an evaluation"),
        pytest.param(["validation step 5/20 loss 0.5"], NOTHING, id="a step of an evaluation"),
        pytest.param(["test step 5/20"], NOTHING, id="a step of a test"),
        pytest.param(["Total optimization steps = 1000"], NOTHING, id="a setting"),
        pytest.param(["max_steps=1000 save_steps=50"], NOTHING, id="settings"),
        pytest.param(["Gradient Accumulation steps = 8, loss scale: 65536"], NOTHING, id="more settings"),
        pytest.param(["Step 1/4: installing requirements"], NOTHING, id="steps of something else"),
        pytest.param(["Step 2/4: prepare train data"], NOTHING, id="of a preparation"),
        pytest.param(["steps per second: 8.5, iter time 0.1"], NOTHING, id="speeds"),
        pytest.param(["loss is nan", "loss nan", "glossary 5"], NOTHING, id="no number"),
        pytest.param(["step 1,200/10,000 loss 1,234.5"], NOTHING, id="numbers with commas"),
        pytest.param(["step 5.5 loss 1.0"], shown(metrics={"loss": 1.0}), id="no step"),
        pytest.param(
            ["step 5/10 loss 1.0", "loss: 0.9"],
            shown(step=5, total=10, percent=50, metrics={"loss": 0.9}),
            id="a later loss",
        ),
        pytest.param(
            ["step 9/10 loss 1.0", "step 1/10 loss 0.9"], shown(metrics={"loss": 0.9}), id="steps that start again"
        ),
        pytest.param(["step 12/10 loss 1.0"], shown(metrics={"loss": 1.0}), id="more steps than there are"),
        pytest.param(["step 5/0 loss 1.0"], shown(metrics={"loss": 1.0}), id="of none"),
        pytest.param(["x" * 5000 + " step 5/10 loss 1.0"], NOTHING, id="beyond what is searched"),
    ],
)
def test_lines(lines: list[str], expected: Observation) -> None:
    assert read(*lines) == expected


@pytest.mark.parametrize(
    "unit", [" ", "a", "a ", "9", "9/", "loss ", "loss", "step ", "epoch ", "%|", "1%|", "_", "[("]
)
def test_no_line_takes_long(unit: str) -> None:
    """Of a pattern that tries all ways to match, this line would take minutes; the test run has a limit."""
    assert read(unit * 5000).step is None
