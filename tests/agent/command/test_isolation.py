"""What a standalone run sees of the job around it."""

import pytest

from pytorchjob_agent.command.isolation import runs_below_worker, without_job_variables

REST = {"PATH": "/bin", "CUDA_VISIBLE_DEVICES": "3", "OMP_NUM_THREADS": "1", "PYTORCHJOB_GRACE_SECONDS": "5"}
PLACE = {
    "MASTER_ADDR": "m",
    "MASTER_PORT": "1",
    "WORLD_SIZE": "9",
    "RANK": "7",
    "PET_NNODES": "3",
    "PET_NODE_RANK": "2",
}
MEETING = {"PET_RDZV_ENDPOINT": "m:1", "PET_RDZV_BACKEND": "c10d", "PET_RDZV_ID": "x", "PET_RDZV_CONF": "a=b"}
OWN = {"PET_NPROC_PER_NODE": "4", "PET_MAX_RESTARTS": "2", "PET_STANDALONE": "1", "TORCHELASTIC_ENABLE_FILE_TIMER": "1"}


@pytest.mark.parametrize(
    ("env", "below_worker", "kept"),
    [
        pytest.param(REST, True, REST, id="what has nothing to do with a job stays"),
        pytest.param(REST | PLACE | MEETING, False, REST, id="in a pod: its place in the job and the meeting go"),
        pytest.param(REST | PLACE | OWN, False, REST | OWN, id="in a pod: the size of this run stays"),
        pytest.param(REST | {"PYTORCHJOB_PROGRESS": "/b"}, True, REST, id="the progress file of the worker above goes"),
        pytest.param(REST | PLACE | MEETING | OWN, True, REST, id="below a worker: all that was its agent's goes"),
    ],
)
def test_what_stays(env: dict[str, str], below_worker: bool, kept: dict[str, str]) -> None:
    assert without_job_variables(env, below_worker=below_worker) == kept


@pytest.mark.parametrize(
    ("env", "below"),
    [
        pytest.param(REST | PLACE | OWN, False, id="a pod"),
        pytest.param({"TORCHELASTIC_RUN_ID": "x"}, True, id="a worker"),
    ],
)
def test_where_we_are(env: dict[str, str], below: bool) -> None:
    assert runs_below_worker(env) == below
