"""The variable of spec.agent.checkpoint: what comes back, and what is refused."""

import pytest

from pytorchjob_agent.contract.checkpoint_rules import CHECKPOINT, CheckpointRules, DurableRules
from pytorchjob_agent.contract.reading import ContractError


def test_rules_come_back_as_they_were() -> None:
    rules = CheckpointRules("/checkpoints", 2**33, 2)
    assert CheckpointRules.from_env({CHECKPOINT: rules.to_json()}) == rules
    assert CheckpointRules.from_env({}) is None
    durable = CheckpointRules("/checkpoints", 5, 1, DurableRules("/mnt/run-1", 1800))
    assert CheckpointRules.from_json(durable.to_json()) == durable
    fast = CheckpointRules("/checkpoints", 5, copy_rate=2_000_000_000)
    assert CheckpointRules.from_json(fast.to_json()) == fast
    text = '{"directory": "/c", "memory": 5, "durable": {"directory": "/c-2"}}'
    assert CheckpointRules.from_json(text).durable == DurableRules("/c-2", 600)
    assert CheckpointRules.from_json('{"directory": "/c", "memory": 5, "newer": 1}') == CheckpointRules("/c", 5, 1)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"memory": 5}', "directory: expected an absolute path"),
        ('{"directory": "c", "memory": 5}', "directory: expected an absolute path"),
        ('{"directory": "//", "memory": 5}', "directory: expected an absolute path"),
        ('{"directory": "/c"}', "memory: expected a number of bytes"),
        ('{"directory": "/c", "memory": 0}', "memory"),
        ('{"directory": "/c", "memory": 5, "copies": 4}', "a number from 0 to 3"),
        (
            '{"directory": "/c", "memory": 5, "copyRate": 0}',
            "copyRate: '0' is wrong: expected a number of bytes per second",
        ),
        ('{"directory": "/c", "memory": 5, "durable": 5}', "durable: '5' is not an object"),
        ('{"directory": "/c", "memory": 5, "durable": {}}', "durable: directory: expected an absolute path"),
        ('{"directory": "/c/", "memory": 5, "durable": {"directory": "/c/d"}}', "/c/d overlaps /c/, which is memory"),
        ('{"directory": "/c/d", "memory": 5, "durable": {"directory": "/c"}}', "/c overlaps /c/d, which is memory"),
        (
            '{"directory": "/c", "memory": 5, "durable": {"directory": "/d", "intervalSeconds": 0}}',
            "durable: intervalSeconds: '0' is wrong: expected a number of seconds",
        ),
        ("[]", "is not an object"),
    ],
)
def test_wrong_rules_are_refused_by_name(text: str, words: str) -> None:
    with pytest.raises(ContractError, match=words):
        CheckpointRules.from_json(text)
