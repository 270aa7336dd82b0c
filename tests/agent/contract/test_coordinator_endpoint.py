"""The variables that lead to the coordinator."""

import pytest

from pytorchjob_agent.contract.coordinator_endpoint import CoordinatorEndpoint
from pytorchjob_agent.contract.reading import ContractError

ENV = CoordinatorEndpoint("coordinator.ops.svc", 29600, "/run/token", "job", "pod-1", 1, ca="Y2E=")


def written(env: CoordinatorEndpoint) -> dict[str, str]:
    """The variables as a container gets them."""
    return {variable["name"]: variable["value"] for variable in env.to_env() if "value" in variable}


def test_what_the_operator_writes_the_agent_reads() -> None:
    assert CoordinatorEndpoint.from_env(written(ENV)) == ENV


def test_the_pods_own_uid_is_known_once_it_is_made() -> None:
    assert ENV.to_env()[-1]["valueFrom"] == {"fieldRef": {"fieldPath": "metadata.uid"}}
    read = CoordinatorEndpoint.from_env({**written(ENV), "PYTORCHJOB_POD_UID": "u"})
    assert read is not None
    assert read.pod_uid == "u"


def test_without_a_coordinator_there_is_nothing_to_read() -> None:
    assert CoordinatorEndpoint.from_env({}) is None


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        pytest.param({"PYTORCHJOB_COORDINATOR": "here"}, "is not host:port", id="no port"),
        pytest.param({"PYTORCHJOB_COORDINATOR": "here:99999"}, "is not host:port", id="a port that is none"),
        pytest.param({"PYTORCHJOB_COORDINATOR": "here:x"}, "is not host:port", id="a port that is no number"),
        pytest.param({"PYTORCHJOB_TOKEN_FILE": ""}, "PYTORCHJOB_TOKEN_FILE is not", id="no token"),
        pytest.param({"PYTORCHJOB_INDEX": "one"}, "is not a replica's number", id="an index that is no number"),
    ],
)
def test_what_is_wrong_is_named(changes: dict[str, str], words: str) -> None:
    with pytest.raises(ContractError, match=words):
        CoordinatorEndpoint.from_env({**written(ENV), **changes})
