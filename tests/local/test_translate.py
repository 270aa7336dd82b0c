import sys
from pathlib import Path
from typing import Any

import pytest

from pytorchjob.local.addresses import Addresses
from pytorchjob.local.supervisor import Command
from pytorchjob.local.translate import LocalMachine, expand, to_command
from pytorchjob_operator.model import PyTorchJob, with_defaults
from pytorchjob_operator.names import ReplicaType
from pytorchjob_operator.observed import Options
from pytorchjob_operator.plan.inject import DIRECTORY
from pytorchjob_operator.plan.pods import build_pod
from pytorchjob_operator.plan.replicas import Replica
from tests.local.jobs import job, role

ADDRESSES = Addresses("tiny", "default", "127.9.9")


def translated(gpus: str | None = None, shell: dict[str, str] | None = None, **container: Any) -> Command:
    command = container.pop("command", ["train"])
    stored = PyTorchJob.model_validate(job(Master=role(["x"]), Worker=role(command, **container)))
    stored = stored.model_copy(update={"metadata": stored.metadata.model_copy(update={"namespace": "default"})})
    pod = build_pod(with_defaults(stored), Replica(ReplicaType.WORKER, 0), Options())
    return to_command(pod, LocalMachine(ADDRESSES, shell or {}, "/here", "/scratch"), gpus)


def variable(name: str, field: str) -> dict[str, Any]:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": field}}}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("$(A)-$(A)", "1-1", id="a reference is replaced wherever it stands"),
        pytest.param("$(B)", "$(B)", id="an unknown one stays"),
        pytest.param("$$(A)", "$(A)", id="two dollar signs escape"),
        pytest.param("$A ${A} $", "$A ${A} $", id="the shell's own syntax is the shell's"),
    ],
)
def test_references_are_kubernetes(text: str, expected: str) -> None:
    assert expand(text, {"A": "1"}) == expected


def test_an_agent_that_is_put_into_pods_is_found_in_the_scratch_directory() -> None:
    given = [{"name": "PYTHONPATH", "value": "/code"}, {"name": "PYTHONPATH", "value": f"{DIRECTORY}:$(PYTHONPATH)"}]
    assert translated(env=given).env["PYTHONPATH"].endswith(":/scratch/agent:/code")


def test_the_callers_own_coordinator_is_not_the_replicas() -> None:
    assert "PYTORCHJOB_COORDINATOR" not in translated(shell={"PYTORCHJOB_COORDINATOR": "a:1"}).env


@pytest.mark.parametrize("name", ["PYTORCHJOB_CACHES", "PYTORCHJOB_CHECKPOINT", "PYTORCHJOB_GPUS"])
def test_replicas_of_one_machine_share_its_directories(name: str) -> None:
    given = [{"name": name, "value": "{}"}, {"name": "OTHER", "value": "1"}]
    found = translated(env=given).env
    assert (name in found, found["OTHER"]) == (False, "1")


def test_arguments_see_the_contract_and_addresses() -> None:
    found = translated(command=["train"], args=["--rank=$(RANK)", "$(MASTER_ADDR)", "tiny-worker-1.tiny:80"])
    assert found.argv == ("train", "--rank=1", "127.9.9.1", "127.9.9.3:80")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        pytest.param("metadata.name", "tiny-worker-0", id="the pod's name stays a name"),
        pytest.param("metadata.namespace", "default", id="the namespace"),
        pytest.param("metadata.labels['training.kubeflow.org/replica-index']", "0", id="a label"),
        pytest.param("metadata.annotations['no']", "", id="an annotation that is not there is empty"),
        pytest.param("status.podIP", "127.9.9.2", id="the address is the replica's own"),
    ],
)
def test_the_downward_api_is_honoured(field: str, value: str) -> None:
    assert translated(env=[variable("X", field)]).env["X"] == value


@pytest.mark.parametrize(
    ("env", "name", "value"),
    [
        pytest.param([{"name": "A", "value": "1"}, {"name": "B", "value": "$(A)2"}], "B", "12", id="in order"),
        pytest.param([{"name": "A", "value": "1"}, {"name": "A", "value": "2"}], "A", "2", id="the last one wins"),
        pytest.param([{"name": "RANK", "value": "7"}], "RANK", "1", id="the contract wins over the user, as under v1"),
        pytest.param([{"name": "GLOO_SOCKET_IFNAME", "value": "eth0"}], "GLOO_SOCKET_IFNAME", "eth0", id="not so ours"),
        pytest.param([{"name": "A"}], "A", "", id="no value is an empty one"),
    ],
)
def test_the_containers_env(env: list[dict[str, Any]], name: str, value: str) -> None:
    assert translated(env=env).env[name] == value


def test_the_callers_own_ranks_do_not_reach_the_replica() -> None:
    shell = {"PET_RDZV_ENDPOINT": "x:1", "LOCAL_RANK": "3", "TORCHELASTIC_RUN_ID": "r", "HF_TOKEN": "t"}
    found = translated(shell=shell).env
    assert {name for name in shell if name in found} == {"HF_TOKEN"}


def test_python_is_the_one_that_runs_this() -> None:
    assert translated(shell={"PATH": "/bin"}).env["PATH"] == f"{Path(sys.executable).parent}:/bin"


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        pytest.param("/", "/", id="a working directory that exists here is used"),
        pytest.param("/no/such", "/here", id="another one gives way to the caller's"),
    ],
)
def test_the_directory(wanted: str, found: str) -> None:
    assert translated(workingDir=wanted).cwd == found


def test_devices_are_handed_on_only_where_there_are_any() -> None:
    assert translated(gpus="0,1").env["CUDA_VISIBLE_DEVICES"] == "0,1"
    assert "CUDA_VISIBLE_DEVICES" not in translated(gpus=None).env
