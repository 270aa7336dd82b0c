"""What a program sees that no launcher has started: what it sees without the agent."""

import pytest

from pytorchjob_agent.workers.started_by import as_first_process

TORCHS = {
    "RANK": "1",
    "LOCAL_RANK": "0",
    "GROUP_RANK": "1",
    "ROLE_NAME": "default",
    "TORCHELASTIC_RUN_ID": "job",
    "TORCHELASTIC_USE_AGENT_STORE": "True",
    "MASTER_ADDR": "10.0.0.7",
    "MASTER_PORT": "20001",
}


@pytest.mark.parametrize(
    ("pod", "size"),
    [
        pytest.param({"PET_NNODES": "3", "WORLD_SIZE": "3"}, "2", id="one process in each pod"),
        pytest.param({"PET_NNODES": "3", "WORLD_SIZE": "12"}, "8", id="v1 counts nprocPerNode"),
        pytest.param({"PET_NNODES": "1:3", "WORLD_SIZE": "3"}, "2", id="elastic"),
        pytest.param({}, "2", id="nothing is known"),
    ],
)
def test_the_round_decides_its_place_and_the_pod_the_rest(pod: dict[str, str], size: str) -> None:
    env = {**TORCHS, "WORLD_SIZE": "2"}
    as_first_process(env, pod)
    assert env == {"RANK": "1", "WORLD_SIZE": size, "MASTER_ADDR": "10.0.0.7", "MASTER_PORT": "20001"}
