"""The manifests of docs/platforms.md: the health check of Argo CD, Flyte's jobs, and the step that waits for a job."""

import importlib
import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from lupa import LuaRuntime

from pytorchjob.cli import COMMANDS, main
from pytorchjob.cluster.remote import RemoteCluster
from pytorchjob_operator.model.base import ConditionType
from pytorchjob_operator.model.load import load_jobs
from tests.people.calling import job_file
from tests.people.fake_cluster import a_job
from tests.people.scripted_server import Answer, Serve
from tests.people.test_http import client

PAGE = (Path(__file__).parents[2] / "docs" / "platforms.md").read_text()
BLOCKS = re.findall(r"^```yaml\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
OBJECTS = [body for block in BLOCKS for body in yaml.safe_load_all(block)]


def the(kind: str) -> dict[str, Any]:
    (found,) = (body for body in OBJECTS if body["kind"] == kind)
    return dict(found)


HEALTH = the("ConfigMap")["data"]["resource.customizations.health.kubeflow.org_PyTorchJob"]
ROWS = re.findall(r'\{"(\w+)", "(\w+)", "(\w+)"\},', HEALTH)


def test_the_health_check_knows_every_condition_once_and_every_health_is_one_of_argo_cd() -> None:
    assert sorted(condition for condition, _, _ in ROWS) == sorted(ConditionType)
    assert {status for _, status, _ in ROWS} <= {"True", "False"}
    assert {health for _, _, health in ROWS} <= {"Healthy", "Progressing", "Degraded", "Suspended"}
    assert [condition for condition, _, _ in ROWS[:2]] == ["Failed", "Succeeded"], "an end outlasts everything else"


def health(job: dict[str, Any]) -> dict[str, Any]:
    """What the script answers, by a real Lua."""
    lua = LuaRuntime()
    lua.globals().obj = lua.table_from(job, recursive=True)
    return dict(lua.execute(HEALTH))


def conditions(**states: str) -> dict[str, Any]:
    listed = [{"type": name, "status": status, "message": f"{name}!"} for name, status in states.items()]
    return {"status": {"conditions": listed}}


@pytest.mark.parametrize(
    ("job", "expected"),
    [
        pytest.param({}, "Progressing", id="no status"),
        pytest.param({"status": {}}, "Progressing", id="no condition"),
        pytest.param(conditions(Created="True", Running="True"), "Progressing", id="running"),
        pytest.param(conditions(Created="True", Running="False", Succeeded="True"), "Healthy", id="succeeded"),
        pytest.param(conditions(Created="True", Running="False", Failed="True"), "Degraded", id="failed"),
        pytest.param(conditions(Created="True", Suspended="True"), "Suspended", id="suspended"),
        pytest.param(conditions(Created="True", Suspended="False", Running="True"), "Progressing", id="resumed"),
        pytest.param(conditions(Created="True", ConfigValid="False"), "Degraded", id="refused by the operator"),
        pytest.param(conditions(Running="True", ReplicaFailure="True"), "Degraded", id="pods that cannot be made"),
        pytest.param(conditions(Succeeded="True", Degraded="True"), "Healthy", id="an end outlasts the rest"),
        pytest.param(conditions(Running="True", Degraded="True"), "Progressing", id="fewer pods than wanted"),
    ],
)
def test_the_health_of_a_job(job: dict[str, Any], expected: str) -> None:
    assert health(job)["status"] == expected


def test_the_jobs_of_flyte_are_accepted() -> None:
    (text,) = (block for block in BLOCKS if "pyflyte-execute" in block)
    jobs = load_jobs(text, "page")
    assert [sorted(job.spec.to_api()["pytorchReplicaSpecs"]) for job in jobs] == [["Master", "Worker"], ["Worker"]]


def test_the_command_of_the_step_exists() -> None:
    program, name, *rest = the("Pod")["spec"]["containers"][0]["command"]
    module, _, command = COMMANDS[name][0].partition(":")
    assert program == main.name
    params = getattr(importlib.import_module(module), command).make_context(name, rest).params
    assert (params["watch"], params["timeout"]) == (True, 6 * 3600)


def test_the_rights_of_the_step_are_enough_for_its_requests(serve: Serve, tmp_path: Path) -> None:
    made = a_job()
    made["metadata"] |= {"namespace": "team", "uid": "x", "resourceVersion": "1"}
    running = {"metadata": {"resourceVersion": "1"}, "kind": "PyTorchJobList", "items": [made]}
    ended = a_job(state="Succeeded")
    ended["metadata"] |= made["metadata"] | {"resourceVersion": "2"}
    server = serve(Answer(made), Answer(running), Answer([(_event(ended) + "\n").encode()]))
    cluster = RemoteCluster(client(server, sleep=lambda seconds: None), "team")
    result = CliRunner().invoke(main, ["submit", "--watch", str(job_file(tmp_path))], obj=lambda options: cluster)
    assert result.exit_code == 0, result.output
    (rule,) = the("Role")["rules"]
    for asked in server.asked:
        path, _, query = asked.path.partition("?")
        assert path.startswith(f"/apis/{rule['apiGroups'][0]}/v1/namespaces/team/{rule['resources'][0]}")
        verb = "create" if asked.method == "POST" else "watch" if "watch=" in query else "list"
        assert verb in rule["verbs"]
    assert len(server.asked) == 3


def _event(body: dict[str, Any]) -> str:
    return json.dumps({"type": "MODIFIED", "object": body})


def test_the_names_of_the_step_fit_each_other() -> None:
    role, binding, pod = the("Role"), the("RoleBinding"), the("Pod")
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    assert binding["subjects"][0]["name"] == pod["spec"]["serviceAccountName"]
