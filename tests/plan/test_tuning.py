"""Settings of torch's c10d beyond v1's, and settings of the user."""

from typing import Any

import pytest

from pytorchjob_operator.observed import Options
from pytorchjob_operator.plan.environment.replica import build_env
from tests.factories import full_job, make_template, replica

TIMINGS = "keep_alive_interval=1,keep_alive_max_attempt=5,last_call_timeout=10"
GUEST = f"is_host=false,{TIMINGS}"


def env(
    policy: dict[str, Any] | None = None, own: list[dict[str, Any]] | None = None, **options: Any
) -> dict[str, str]:
    """The env of worker 1 of two; `own` is what the user gives container pytorch."""
    template = make_template(containers=[{"name": "pytorch", "env": own or []}])
    job = full_job(master=None, workers=2, elasticPolicy=policy, template=template)
    return build_env(job, replica("worker-1"), Options(**options)).to_env()


def setting(key: str, value: str) -> dict[str, Any]:
    return {"rdzvConf": [{"key": key, "value": value}]}


def own(value: str, name: str = "PET_RDZV_CONF") -> list[dict[str, Any]]:
    return [{"name": name, "value": value}]


@pytest.mark.parametrize(
    ("policy", "given", "expected"),
    [
        pytest.param({}, [], GUEST, id="neither the policy nor the pod sets anything"),
        pytest.param({"rdzvBackend": "c10d"}, [], GUEST, id="c10d by name is c10d"),
        pytest.param(
            setting("last_call_timeout", "60"),
            [],
            "last_call_timeout=60,is_host=false,keep_alive_interval=1,keep_alive_max_attempt=5",
            id="a setting of the policy stays, the others are added",
        ),
        pytest.param({}, own("timeout=9"), f"timeout=9,{GUEST}", id="settings in the pod's env count, too"),
        pytest.param({}, own("is_host=1"), f"is_host=1,{TIMINGS}", id="is_host in the pod's env stays"),
        pytest.param({}, own(""), GUEST, id="an empty value counts as unset"),
        pytest.param({}, own("nonsense"), None, id="settings that cannot be read are left alone"),
        pytest.param({}, own("timeout=$(T)"), None, id="settings that only the kubelet can read are left alone"),
        pytest.param(
            {}, [{"name": "PET_RDZV_CONF", "valueFrom": {}}], None, id="settings from elsewhere are left alone"
        ),
        pytest.param({"minReplicas": 1, "maxReplicas": 16}, [], GUEST, id="sixteen nodes"),
        pytest.param({"minReplicas": 1, "maxReplicas": 17}, [], "is_host=false", id="above sixteen: torch's own"),
        pytest.param({"rdzvBackend": "static"}, [], None, id="static has no such settings"),
        pytest.param({"rdzvBackend": "etcd-v2", "rdzvHost": "e"}, [], None, id="nor has etcd"),
    ],
)
def test_settings_are_added_to_what_the_user_said(
    policy: dict[str, Any], given: list[dict[str, Any]], expected: str | None
) -> None:
    assert env(policy, given).get("PET_RDZV_CONF") == expected


@pytest.mark.parametrize(
    ("policy", "given", "separate"),
    [
        pytest.param({}, [], True, id="c10d"),
        pytest.param({"minReplicas": 1, "maxReplicas": 999}, [], True, id="c10d of any size"),
        pytest.param({}, own("0", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE"), False, id="the user has decided"),
        pytest.param({"rdzvBackend": "static"}, [], False, id="static"),
        pytest.param({"rdzvBackend": "mine"}, [], False, id="a backend that the image brings"),
        pytest.param(None, [], False, id="a job that is not elastic"),
    ],
)
def test_each_round_has_its_own_store(
    policy: dict[str, Any] | None, given: list[dict[str, Any]], separate: bool
) -> None:
    assert ("TORCH_DISABLE_SHARE_RDZV_TCP_STORE" in env(policy, given)) is separate


def test_beside_pods_of_v1_all_is_as_v1_has_it() -> None:
    variables = env({}, legacy=True)
    assert variables["PET_RDZV_CONF"] == "is_host=false"
    assert "TORCH_DISABLE_SHARE_RDZV_TCP_STORE" not in variables
