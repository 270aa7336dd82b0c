from typing import Any

import pytest

from pytorchjob.local.gpus import RESOURCE
from pytorchjob.local.processes import settle
from pytorchjob_operator.model import PyTorchJob
from tests.local.jobs import job, role

RUN = ["pytorchjob-agent", "run", "--", "train.py"]


def settled(
    command: list[str], spec: dict[str, Any] | None = None, devices: int = 0, **container: Any
) -> tuple[str | None, list[str]]:
    given = job(Worker=role(command, 3, **container))
    given["spec"] |= spec or {}
    made, notes = settle(PyTorchJob.model_validate(given), 8, devices)
    return made.spec.nproc_per_node, notes


def test_the_sum_is_capped_at_the_cpus_and_one_line_says_how_to_change_it() -> None:
    assert settled(RUN) == (
        "2",
        [
            "nprocPerNode is unset: 2 processes in each of 3 replicas, 6 in all on 8 CPUs;"
            " set spec.nprocPerNode to change it"
        ],
    )


@pytest.mark.parametrize(
    ("command", "options", "number"),
    [
        pytest.param(["torchrun", "train.py"], {}, "2", id="torchrun counts CPUs too"),
        pytest.param(["bash", "-c", "python -m torch.distributed.run x.py"], {}, "2", id="torchrun as a module"),
        pytest.param(RUN, {"resources": {"limits": {"cpu": 1}}}, "1", id="a CPU limit is kept"),
        pytest.param(RUN, {"resources": {"limits": {"cpu": 6}}}, "2", id="a limit beyond this machine is not"),
        pytest.param(RUN, {"resources": {"limits": {RESOURCE: 1}}}, "2", id="GPUs that this machine lacks"),
        pytest.param(
            RUN, {"resources": {"limits": {RESOURCE: 1}}, "devices": 3}, None, id="GPUs: torchrun counts them"
        ),
        pytest.param(RUN, {"spec": {"nprocPerNode": "9"}}, "9", id="a number of the user's own"),
        pytest.param(
            RUN,
            {"spec": {"nprocPerNode": "8"}, "resources": {"limits": {RESOURCE: 8}}},
            "2",
            id="a number of GPUs that this machine lacks",
        ),
        pytest.param(
            RUN,
            {"spec": {"nprocPerNode": "1"}, "resources": {"limits": {RESOURCE: 1}}},
            "1",
            id="a number that fits the CPUs as well",
        ),
        pytest.param(RUN, {"spec": {"nprocPerNode": "auto"}}, "auto", id="auto, if the user wrote it"),
        pytest.param(RUN, {"spec": {"elasticPolicy": {"nProcPerNode": 4}}}, None, id="the number of an elastic job"),
        pytest.param(["torchrun", "--nproc-per-node=4", "x.py"], {}, None, id="a number in the command"),
        pytest.param(RUN, {"env": [{"name": "PET_NPROC_PER_NODE", "value": "4"}]}, None, id="a number in the env"),
        pytest.param(["python", "train.py"], {}, None, id="no launcher: each replica is one process"),
    ],
)
def test_a_number_is_set_only_where_cpus_would_be_counted(
    command: list[str], options: dict[str, Any], number: str | None
) -> None:
    found, notes = settled(command, **options)
    assert found == number
    assert len(notes) == (number in ("1", "2") and number != options.get("spec", {}).get("nprocPerNode"))


def test_every_replica_starts_a_process_on_the_smallest_machine() -> None:
    given = PyTorchJob.model_validate(job(Worker=role(RUN, 3)))
    made, (note,) = settle(given, 1, 0)
    assert made.spec.nproc_per_node == "1"
    assert "1 process in each of 3 replicas, 3 in all on 1 CPU;" in note
