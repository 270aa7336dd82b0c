"""The command line of `pytorchjob`, short of running anything (that is tests/local/test_run.py)."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from pytorchjob.cli import main
from pytorchjob_operator import __version__
from tests.local.jobs import ROOT, job, role, write

GOOD = job(Master=role(["x"]), Worker=role(["x"], replicas=2))


def call(*arguments: str | Path, stdin: str | None = None) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments], input=stdin)


def changed(path: str, value: Any) -> dict[str, Any]:
    spec: dict[str, Any] = json.loads(json.dumps(GOOD))
    *parents, last = path.split(".")
    at = spec
    for part in parents:
        at = at[part]
    at[last] = value
    return spec


def test_the_version_is_printed() -> None:
    assert call("--version").output.strip().endswith(__version__)


def test_a_valid_file_is_called_valid(tmp_path: Path) -> None:
    result = call("validate", write(tmp_path / "job.yaml", GOOD))
    assert (result.exit_code, result.output.endswith(": PyTorchJob tiny is valid\n")) == (0, True)


def test_a_valid_file_that_may_lose_its_saves_is_warned_of(tmp_path: Path) -> None:
    agent = {"checkpoint": {"directory": "/checkpoints", "memory": "1Gi"}}
    result = call("validate", write(tmp_path / "job.yaml", changed("spec.agent", agent)))
    assert (result.exit_code, result.stderr.count("warning: ")) == (0, 2)


WORKER = "spec.pytorchReplicaSpecs.Worker"


@pytest.mark.parametrize("command", ["run", "plan", "validate"])
@pytest.mark.parametrize(
    ("path", "value", "named"),
    [
        pytest.param(f"{WORKER}.replicas", 0, f"{WORKER}.replicas", id="replicas 0"),
        pytest.param(f"{WORKER}.replicas", 10**9, f"{WORKER}.replicas", id="huge replicas"),
        pytest.param(f"{WORKER}.replicas", "two", f"{WORKER}.replicas", id="a wrong type"),
        pytest.param(f"{WORKER}.replica", 2, f"{WORKER}.replica", id="an unknown field"),
        pytest.param(f"{WORKER}.template.spec.containers", [], "containers", id="no container"),
        pytest.param("metadata.name", "n" * 60, "metadata.name", id="a name too long for its pods"),
        pytest.param("spec.elasticPolicy", {"minReplicas": 3, "maxReplicas": 2}, "elasticPolicy", id="min above max"),
        pytest.param("kind", "TFJob", "kind", id="another kind"),
    ],
)
def test_a_bad_job_ends_with_2_and_names_the_field(
    tmp_path: Path, command: str, path: str, value: Any, named: str
) -> None:
    file = write(tmp_path / "job.yaml", changed(path, value))
    result = call(command, file)
    assert result.exit_code == 2
    assert named in result.stderr


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("a: [", "job.yaml:", id="text that is no YAML is named with its place"),
        pytest.param("", "contains no object", id="an empty file"),
        pytest.param(yaml.safe_dump_all([GOOD, changed("metadata.name", "other")]), "--job NAME", id="two jobs"),
    ],
)
def test_a_file_that_is_no_job_ends_with_2(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(text)
    result = call("run", "-f", file)
    assert (result.exit_code, message in result.stderr) == (2, True)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        pytest.param(["--replicas", "0"], "--replicas", id="an impossible number"),
        pytest.param(["--replicas", "20000"], f"{WORKER}.replicas", id="a number that the rules refuse"),
        pytest.param(["--job", "other"], "contains no job named other", id="a job that is not there"),
        pytest.param(["--output", "xml"], "--output", id="an unknown format"),
    ],
)
def test_wrong_options_end_with_2(tmp_path: Path, options: list[str], message: str) -> None:
    result = call("run", "-f", write(tmp_path / "job.yaml", GOOD), *options)
    assert (result.exit_code, message in result.stderr) == (2, True)


def test_a_deprecated_field_is_valid_with_a_warning(tmp_path: Path) -> None:
    spec = changed("spec.elasticPolicy", {"nProcPerNode": 2})
    result = call("validate", write(tmp_path / "job.yaml", spec))
    assert result.exit_code == 0
    assert "warning: spec.elasticPolicy.nProcPerNode is deprecated, use spec.nprocPerNode instead" in result.output


@pytest.mark.parametrize("command", [["validate"], ["plan"], ["run", "-f"], ["run"]], ids=" ".join)
@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        pytest.param({}, "error: metadata: is required", id="no metadata"),
        pytest.param({"metadata": None}, "error: metadata: is required", id="empty metadata"),
        pytest.param({"metadata": []}, "error: metadata: must be a map, got []", id="a list"),
        pytest.param({"metadata": {"namespace": "x"}}, "error: metadata.name: is required", id="no name"),
    ],
)
def test_a_job_without_a_name_is_one_sentence(
    tmp_path: Path, command: list[str], metadata: dict[str, Any], message: str
) -> None:
    bare = {key: value for key, value in GOOD.items() if key != "metadata"}
    result = call(*command, write(tmp_path / "job.yaml", {**bare, **metadata}))
    assert (result.exit_code, result.output.splitlines()) == (2, [message])


@pytest.mark.parametrize("file", [["-f", "no/such.yaml"], ["no/such.yaml"]], ids=" ".join)
def test_a_missing_file_is_named(file: list[str]) -> None:
    result = call("run", *file)
    assert (result.exit_code, result.stderr) == (2, "error: no/such.yaml: there is no such file, and no folder no\n")


@pytest.mark.parametrize(
    ("files", "message"),
    [
        pytest.param([], "no file is given: `pytorchjob run FILE`, or -f FILE", id="no file"),
        pytest.param(["a.yaml", "-f", "a.yaml"], "give the file once: `pytorchjob run FILE`, or -f FILE", id="both"),
    ],
)
def test_run_takes_one_file(files: list[str], message: str) -> None:
    result = call("run", *files)
    assert (result.exit_code, message in result.stderr) == (2, True)


def test_the_plan_is_the_objects_of_the_job() -> None:
    result = call("plan", "-", stdin=yaml.safe_dump(GOOD))
    made = [document for document in yaml.safe_load_all(result.output) if document]
    assert [(document["kind"], document["metadata"]["name"]) for document in made] == [
        ("Service", "tiny"),
        *(("Pod", f"tiny-{name}") for name in ("master-0", "worker-0", "worker-1")),
    ]
    assert "&id" not in result.output


def planned(template: dict[str, Any], **spec: Any) -> dict[str, Any]:
    """The spec of the pod that `pytorchjob plan` prints for a job of one worker."""
    worker = {"replicas": 1, "template": template}
    made = {**GOOD, "spec": {"pytorchReplicaSpecs": {"Worker": worker}, **spec}}
    result = call("plan", "-", stdin=yaml.safe_dump(made))
    assert result.exit_code == 0, result.output
    (pod,) = [document for document in yaml.safe_load_all(result.output) if document and document["kind"] == "Pod"]
    found: dict[str, Any] = pod["spec"]
    return found


def container(*command: str) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": "pytorch", "image": "i", "command": list(command)}]}}


def variables(spec: dict[str, Any]) -> dict[str, str]:
    return {entry["name"]: entry.get("value", "") for entry in spec["containers"][0]["env"]}


def test_the_plan_has_what_the_installed_operator_adds_for_an_agent() -> None:
    spec = planned(container("pytorchjob-agent", "run", "train.py"))
    found = variables(spec)
    assert (
        found["PYTORCHJOB_COORDINATOR"] == "pytorchjob-operator-coordinator.pytorchjob-system.svc.cluster.local:29600"
    )
    assert found["PYTORCHJOB_COORDINATOR_CA"] == "<certificate of the coordinator>"
    assert found["PYTORCHJOB_TOKEN_FILE"] == "/var/run/secrets/pytorchjob.kubeflow.org/token"
    assert [volume["name"] for volume in spec["volumes"]] == ["pytorchjob-caches", "pytorchjob-token"]
    mounts = {mount["name"]: mount.get("readOnly") for mount in spec["containers"][0]["volumeMounts"]}
    assert mounts == {"pytorchjob-caches": None, "pytorchjob-token": True}


def test_the_plan_has_the_container_that_installs_an_injected_agent() -> None:
    spec = planned(container("torchrun", "train.py"), agent={"inject": True})
    (first,) = spec["initContainers"]
    assert (first["name"], first["image"]) == ("pytorchjob-agent-install", f"pytorchjob/operator:{__version__}")
    assert "PYTORCHJOB_COORDINATOR" in variables(spec)
    volumes = ["pytorchjob-agent", "pytorchjob-caches", "pytorchjob-token"]
    assert [volume["name"] for volume in spec["volumes"]] == volumes


def test_the_plan_of_a_torchrun_job_has_nothing_of_it() -> None:
    spec = planned(container("torchrun", "train.py"))
    assert [name for name in variables(spec) if name.startswith("PYTORCHJOB_")] == []
    assert "volumes" not in spec


def test_the_operators_variables_change_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTORCHJOB_OPERATOR_COORDINATOR", "false")
    assert "PYTORCHJOB_COORDINATOR" not in variables(planned(container("pytorchjob-agent", "run", "train.py")))


@pytest.mark.parametrize(
    ("agent", "setting", "injected", "why"),
    [
        ({}, "Off", False, "setting"),
        ({}, "Inject", True, "setting"),
        ({"inject": False}, "Inject", False, "spec.agent.inject"),
        ({"inject": True}, "Off", True, "spec.agent.inject"),
    ],
)
def test_the_plan_says_whether_the_agent_is_injected_and_why(
    monkeypatch: pytest.MonkeyPatch, agent: dict[str, Any], setting: str, injected: bool, why: str
) -> None:
    monkeypatch.setenv("PYTORCHJOB_AGENT_DEFAULT", setting)
    result = call("plan", "-", stdin=yaml.safe_dump(changed("spec.agent", agent)))
    (line,) = [line for line in result.output.splitlines() if line.startswith("# agent: ")]
    assert ("not injected" in line, why in line) == (not injected, True)
    assert ("initContainers" in result.output) is injected


def test_a_wrong_variable_of_the_operator_ends_the_plan_with_2(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTORCHJOB_OPERATOR_COORDINATOR", "perhaps")
    result = call("plan", "-", stdin=yaml.safe_dump(GOOD))
    assert (result.exit_code, "PYTORCHJOB_OPERATOR_COORDINATOR" in result.stderr) == (2, True)


def test_the_plan_of_a_gang_shows_its_pods_although_they_wait() -> None:
    gang = changed("spec.runPolicy", {"schedulingPolicy": {"gangScheduler": "volcano"}})
    result = call("plan", "-", stdin=yaml.safe_dump(gang))
    made = [document for document in yaml.safe_load_all(result.output) if document]
    assert [document["kind"] for document in made] == ["Service", "PodGroup", "Pod", "Pod", "Pod"]
    assert {document["spec"]["schedulerName"] for document in made[2:]} == {"volcano"}


def test_help_is_instant_because_nothing_is_loaded() -> None:
    code = "import sys, pytorchjob.cli; print(sorted({'pydantic', 'yaml', 'jsonschema'} & {*sys.modules}))"
    env = {"PYTHONPATH": str(ROOT / "operator")}
    found = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n"
