"""`events`, `exec`, `init`, `version`."""

import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from pytorchjob import __version__
from pytorchjob.cluster.errors import ApiServerUnreachable
from pytorchjob.commands.exec import processes_of
from pytorchjob_operator.model.load import load_jobs
from tests.people.calling import call
from tests.people.fake_cluster import FakeCluster, a_job, a_pod, an_event


def test_events_are_those_of_the_job_and_of_its_pods() -> None:
    cluster = FakeCluster(
        an_event("digits", "PyTorchJobCreated", "The job\nis created."),
        an_event("digits-worker-0", "FailedScheduling", "0/3 nodes", kind="Pod", seconds=1),
        an_event("digits-2", "PyTorchJobCreated", "another job"),
        an_event("digits-worker-0-x", "Started", "another pod", kind="Pod"),
    )
    lines = call(cluster, "events", "digits").stdout.splitlines()
    assert lines[0].split("   ")[0] == "LAST SEEN"
    assert [line.split()[1:] for line in lines[1:]] == [
        ["Normal", "PyTorchJobCreated", "pytorchjob/digits", "The", "job", "is", "created."],
        ["Warning", "FailedScheduling", "pod/digits-worker-0", "0/3", "nodes"],
    ]


def test_events_of_one_type_as_objects() -> None:
    cluster = FakeCluster(an_event("digits", "Created", "x"), an_event("digits", "FailedCreatePod", "y"))
    found = json.loads(call(cluster, "events", "digits", "--types", "Warning", "-o", "json").stdout)
    assert [event["reason"] for event in found["items"]] == ["FailedCreatePod"]


def test_a_job_without_events_and_no_job() -> None:
    cluster = FakeCluster(a_job())
    assert call(cluster, "events", "digits").stderr == "No events found for the job digits.\n"
    assert call(cluster, "events", "digit").exit_code == 4


@pytest.mark.parametrize(
    ("spec", "status", "processes"),
    [
        ({"nprocPerNode": "8"}, {}, 8),
        ({"nprocPerNode": "auto"}, {}, None),
        ({}, {}, None),
        ({"nprocPerNode": "auto"}, {"elastic": {"worldSize": 12, "members": 3}}, 4),
        ({"elasticPolicy": {"nProcPerNode": 2}}, {}, 2),
    ],
)
def test_the_processes_of_a_pod(spec: dict[str, Any], status: dict[str, Any], processes: int | None) -> None:
    job = a_job(**spec)
    job["status"] |= status
    assert processes_of(job) == processes


PODS = [a_pod("digits", name) for name in ("master-0", "worker-0", "worker-1")]


EXEC, FORWARD = "exec --context=dev --namespace=team", "port-forward --context=dev --namespace=team"
DEBUG = "debug --context=dev --namespace=team -i digits-master-0"


def handed_over(
    folder: Path, program: str, *arguments: str, stdin: int | None = None, text: str | None = None, **env: str
) -> str:
    """The output of a command on a machine on which kubectl is this shell script."""
    kubectl = folder / "kubectl"
    kubectl.write_text(f"#!/bin/sh\n{program}\n")
    kubectl.chmod(kubectl.stat().st_mode | stat.S_IXUSR)
    code = (
        "from pytorchjob.cli import main; from tests.people.test_small_commands import PODS;"
        "from tests.people.fake_cluster import FakeCluster, a_job;"
        f"main({list(arguments)!r}, obj=lambda options: FakeCluster(a_job(nprocPerNode='2'), *PODS))"
    )
    env = {**os.environ, "PYTHONPATH": f"{Path.cwd()}/operator:{Path.cwd()}", "PATH": str(folder), **env}
    given: dict[str, Any] = {"stdin": stdin} if stdin is not None else {"input": text or ""}
    command = [sys.executable, "-c", code]
    return subprocess.run(command, env=env, stdout=subprocess.PIPE, text=True, check=True, **given).stdout


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        pytest.param(
            ["exec", "digits", "-i", "--", "ls", "-l"], f"{EXEC} -i digits-master-0 -c pytorch -- ls -l", id="rank 0"
        ),
        pytest.param(
            ["exec", "digits", "--rank", "5", "--", "ls"], f"{EXEC} digits-worker-1 -c pytorch -- ls", id="a rank"
        ),
        pytest.param(
            ["exec", "digits", "--replica", "worker-0", "--", "ls"],
            f"{EXEC} digits-worker-0 -c pytorch -- ls",
            id="a replica",
        ),
        pytest.param(["shell", "digits"], f"{EXEC} -i digits-master-0 -c pytorch -- sh -c", id="a shell"),
        pytest.param(
            ["shell", "digits", "worker-1", "-c", "side"], f"{EXEC} -i digits-worker-1 -c side --", id="of a pod"
        ),
        pytest.param(
            ["shell", "digits", "digits-worker-1"], f"{EXEC} -i digits-worker-1 -c", id="of a pod by its whole name"
        ),
        pytest.param(
            ["debug", "digits"],
            f"{DEBUG} --image=train:1 --target=pytorch --profile=general -- sh -c",
            id="a container",
        ),
        pytest.param(
            ["debug", "digits", "--image", "tools:2", "--profile", "restricted"],
            f"{DEBUG} --image=tools:2 --target=pytorch --profile=restricted --",
            id="of another image",
        ),
        pytest.param(
            ["port-forward", "digits", "6006"], f"{FORWARD} --address=localhost pod/digits-master-0 6006", id="a port"
        ),
        pytest.param(
            ["port-forward", "digits", "worker-0", "80:6006", ":1", "--address", "::1"],
            f"{FORWARD} --address=::1 pod/digits-worker-0 80:6006 :1",
            id="ports of a pod",
        ),
        pytest.param(
            ["port-forward", "digits", "--rank", "4", "80"],
            f"{FORWARD} --address=localhost pod/digits-worker-1 80",
            id="a port of a rank",
        ),
    ],
)
def test_a_command_in_a_pod_is_handed_over_to_kubectl(tmp_path: Path, arguments: list[str], line: str) -> None:
    command, *rest = arguments
    assert handed_over(tmp_path, 'echo "$@"', command, "--context", "dev", *rest).startswith(line)


def test_a_terminal_is_handed_over_as_one(tmp_path: Path) -> None:
    outer, inner = os.openpty()
    try:
        assert "-it digits-master-0" in handed_over(tmp_path, 'echo "$@"', "shell", "digits", stdin=inner)
    finally:
        os.close(outer)
        os.close(inner)


@pytest.mark.parametrize(("programs", "is_bash"), [(["sh", "bash"], True), (["sh"], False)])
def test_the_shell_is_bash_or_else_sh(tmp_path: Path, programs: list[str], is_bash: bool) -> None:
    image = tmp_path / "bin"
    image.mkdir()
    for program in programs:
        real = Path("/bin/dash") if program == "sh" and Path("/bin/dash").exists() else Path(f"/bin/{program}")
        (image / program).symlink_to(real)
    runs = 'while [ "$1" != -- ]; do shift; done; shift; export PATH="$IMAGE"; exec "$@"'
    said = handed_over(tmp_path, runs, "shell", "digits", text="echo bash:$BASH\n", IMAGE=str(image))
    assert (said != "bash:\n") == is_bash


@pytest.mark.parametrize(
    ("command", "right"),
    [
        (["exec", "digits", "--", "ls"], "exec"),
        (["shell", "digits"], "exec"),
        (["profile", "digits"], "exec"),
        (["debug", "digits"], "ephemeralcontainers"),
        (["debug", "digits"], "attach"),
        (["port-forward", "digits", "80"], "portforward"),
    ],
)
def test_a_right_that_is_missing_is_named(command: list[str], right: str) -> None:
    cluster = FakeCluster(a_job(), *PODS)
    cluster.forbid(right)
    result = call(cluster, *command)
    assert (result.exit_code, f"pods/{right} in the namespace team" in result.stderr) == (3, True)


IN_POD = 'while [ "$1" != -- ]; do shift; done; shift; export PATH="$IMAGE"; exec "$@"'
PY_SPY = 'shift; echo "$@" >&2; echo "main (a.py:1);step (a.py:7) 3"; echo no stack; echo "main (a.py:2) 2"'


def image_with(folder: Path, **programs: str) -> str:
    """A folder as the PATH of a container: the shell, and these programs as scripts of it."""
    image = folder / "image"
    image.mkdir()
    (image / "sh").symlink_to("/bin/sh")
    for name, program in programs.items():
        (image / name.replace("_", "-")).write_text(f"#!/bin/sh\n{program}\n")
        (image / name.replace("_", "-")).chmod(0o755)
    return str(image)


def test_a_profile_by_py_spy_becomes_a_file(tmp_path: Path) -> None:
    file = tmp_path / "out"
    image = image_with(tmp_path, py_spy=PY_SPY)
    said = handed_over(tmp_path, IN_POD, "profile", "digits", "--rank", "3", "-o", str(file), IMAGE=image)
    assert "5 samples of digits-worker-0" in said
    assert file.read_text() == "main (a.py:1);step (a.py:7) 3\nmain (a.py:2) 2\n"


def test_a_profile_by_the_agent_is_that_of_the_local_rank(tmp_path: Path) -> None:
    file = tmp_path / "out"
    image = image_with(tmp_path, python='[ "$1" = -c ] || echo "$@" 1')
    handed_over(tmp_path, IN_POD, "profile", "digits", "--rank", "3", "--seconds", "2", "-o", str(file), IMAGE=image)
    assert file.read_text() == "-m pytorchjob_agent profile --local-rank 1 --seconds 2 --rate 100 1\n"


@pytest.mark.parametrize(
    ("programs", "error"),
    [
        pytest.param({}, "no agent, and no py-spy", id="an image without both"),
        pytest.param({"python": '[ "$1" = -c ] || exit 78'}, "rounds runs there, and no py-spy", id="no rounds"),
        pytest.param({"python": '[ "$1" = -c ] || { echo gone >&2; exit 1; }'}, "profile: gone", id="a worker ended"),
        pytest.param({"py_spy": 'printf "\\033[2Jno\\n" >&2; exit 1'}, "[2Jno", id="py-spy may not"),
        pytest.param({"py_spy": "echo hello"}, "without samples", id="something else"),
    ],
)
def test_a_profile_that_cannot_be_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, programs: dict[str, str], error: str
) -> None:
    kubectl = tmp_path / "kubectl"
    kubectl.write_text(f"#!/bin/sh\n{IN_POD}\n")
    kubectl.chmod(0o755)
    monkeypatch.setenv("IMAGE", image_with(tmp_path, **programs))
    monkeypatch.setenv("PATH", str(tmp_path))
    result = call(FakeCluster(a_job(), *PODS), "profile", "digits", "-o", tmp_path / "out")
    assert (result.exit_code, error in result.stderr) == (1, True), result.stderr
    assert "\x1b" not in result.stderr
    assert not (tmp_path / "out").exists()


def test_a_container_that_cannot_be_debugged_is_named() -> None:
    result = call(FakeCluster(a_job(), *PODS), "debug", "digits", "--target", "other")
    assert (result.exit_code, "its containers are: pytorch" in result.stderr) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "status", "sentence"),
    [
        pytest.param(["--rank", "6"], 2, "its ranks are 0 to 5", id="a rank that is not"),
        pytest.param(["--replica", "worker-7"], 2, "it has: master-0, worker-0, worker-1", id="a replica that is not"),
        pytest.param(["--rank", "1", "--replica", "worker-0"], 2, "exclude each other", id="both"),
        pytest.param([], 1, "exec needs kubectl", id="no kubectl"),
    ],
)
def test_exec_explains_what_it_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], status: int, sentence: str
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    cluster = FakeCluster(a_job(nprocPerNode="2"), *PODS)
    result = call(cluster, "exec", "digits", *arguments, "--", "ls")
    assert (result.exit_code, sentence in result.stderr) == (status, True)


@pytest.mark.parametrize(
    ("pods", "spec", "arguments", "sentence"),
    [
        pytest.param([], {}, [], "has no pods", id="no pods"),
        pytest.param(PODS, {"nprocPerNode": "auto"}, ["--rank", "3"], "for example worker-0", id="unknown processes"),
        pytest.param(
            [a_pod("digits", "master-0", phase="Failed")], {}, [], "has ended (Failed)", id="a pod that ended"
        ),
    ],
)
def test_exec_needs_a_pod_that_runs(
    pods: list[dict[str, Any]], spec: dict[str, Any], arguments: list[str], sentence: str
) -> None:
    result = call(FakeCluster(a_job(**spec), *pods), "exec", "digits", *arguments, "--", "ls")
    assert result.exit_code != 0
    assert sentence in result.stderr


@pytest.mark.parametrize(
    "options",
    [
        [],
        ["--workers", "3", "--gpus", "8"],
        ["--min-workers", "1"],
        ["--script", "run.py", "--image", "my/image:2", "--configmap"],
    ],
)
def test_what_init_writes_is_valid(tmp_path: Path, options: list[str]) -> None:
    result = call(None, "init", "my-job", "--directory", tmp_path, *options)
    assert result.exit_code == 0
    (job,) = load_jobs((tmp_path / "pytorchjob.yaml").read_text(), "file")
    assert job.metadata.name == "my-job"
    assert call(None, "validate", tmp_path / "pytorchjob.yaml").exit_code == 0


def test_the_file_of_init_has_the_agent_with_all_of_its_features(tmp_path: Path) -> None:
    call(None, "init", "--directory", tmp_path)
    spec = yaml.safe_load((tmp_path / "pytorchjob.yaml").read_text())["spec"]
    container = spec["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]
    assert spec["agent"] == {"inject": True}
    assert container["command"] == ["python", "-m", "pytorchjob_agent", "run", "--", "train.py"]


def test_init_with_an_image_that_exists_does_not_offer_to_build_it(tmp_path: Path) -> None:
    assert call(None, "init", "mine", "--directory", tmp_path, "--image", "team/torch:3").exit_code == 0
    assert [path.name for path in tmp_path.iterdir()] == ["pytorchjob.yaml"]


def test_init_mounts_the_script_from_a_config_map(tmp_path: Path) -> None:
    options = ("--image", "team/torch:3", "--script", "fit.py", "--configmap")
    assert call(None, "init", "mine", "--directory", tmp_path, *options).exit_code == 0
    text = (tmp_path / "pytorchjob.yaml").read_text()
    template = yaml.safe_load(text)["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]
    (container,) = template["containers"]
    assert (container["workingDir"], container["command"][-1]) == ("/script", "fit.py")
    assert template["volumes"] == [{"name": "script", "configMap": {"name": "mine"}}]
    assert "kubectl create configmap mine --from-file=fit.py" in text


def test_the_numbers_of_init_are_in_the_file(tmp_path: Path) -> None:
    call(None, "init", "--directory", tmp_path, "--workers", "3", "--gpus", "4", "--min-workers", "2")
    spec = yaml.safe_load((tmp_path / "pytorchjob.yaml").read_text())["spec"]
    worker = spec["pytorchReplicaSpecs"]["Worker"]
    limits = worker["template"]["spec"]["containers"][0]["resources"]["limits"]
    assert (spec["nprocPerNode"], spec["elasticPolicy"]["minReplicas"], worker["replicas"]) == ("4", 2, 3)
    assert limits["nvidia.com/gpu"] == 4


@pytest.mark.parametrize("more", [[], ["--image", "team/torch:3", "--configmap"]], ids=["alone", "beside a script"])
def test_init_gives_gpus_shared_memory_and_a_preset_of_the_network(tmp_path: Path, more: list[str]) -> None:
    assert call(None, "init", "--directory", tmp_path, "--gpus", "4", *more).exit_code == 0
    spec = yaml.safe_load((tmp_path / "pytorchjob.yaml").read_text())["spec"]
    pod = spec["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]
    (container,) = pod["containers"]
    (shm,) = (volume for volume in pod["volumes"] if volume["name"] == "shm")
    assert shm["emptyDir"] == {"medium": "Memory", "sizeLimit": "32Gi"}
    assert {"name": "shm", "mountPath": "/dev/shm"} in container["volumeMounts"]
    assert container["envFrom"] == [{"configMapRef": {"name": "nccl-ethernet", "optional": True}}]
    assert len(container["volumeMounts"]) == len(pod["volumes"]) == 1 + bool(more)


@pytest.mark.parametrize(
    ("arguments", "sentence", "step"),
    [
        pytest.param(["My_Job"], "'My_Job' cannot be the name of a job", "my-job", id="a name with capitals"),
        pytest.param(["x" * 60], "cannot be the name of a job", "at most 40", id="a long name"),
        pytest.param(
            ["--min-workers", "3"], "--min-workers 3 is more than --workers 2", "correct", id="unequal numbers"
        ),
        pytest.param(["--configmap"], "--configmap needs an image", "--image", id="a ConfigMap without an image"),
        pytest.param(
            ["--configmap", "--image", "x", "--script", "a/b.py"],
            "is in a folder",
            "change into",
            id="a script elsewhere",
        ),
        pytest.param(["--directory", "no/such"], "cannot be written", "another folder", id="no folder"),
    ],
)
def test_init_refuses_what_cannot_be(arguments: list[str], sentence: str, step: str) -> None:
    result = call(None, "init", *arguments)
    assert (result.exit_code, sentence in result.stderr, step in result.stderr) == (2, True, True)


def test_init_names_the_commands_that_follow_and_a_script_that_is_missing(tmp_path: Path) -> None:
    first = call(None, "init", "--directory", tmp_path)
    file = tmp_path / "pytorchjob.yaml"
    steps = f"next: `pytorchjob run -f {file}` runs it on this machine, `pytorchjob submit {file}` in a cluster\n"
    note = "note: train.py does not exist yet: write it, or name another with --script\n"
    assert first.stderr == note + steps
    file.unlink()
    (tmp_path / "train.py").touch()
    assert call(None, "init", "--directory", tmp_path).stderr == steps


def test_init_overwrites_nothing(tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text("mine")
    assert "Dockerfile exists and stays as it is" in call(None, "init", "--directory", tmp_path).stdout
    again = call(None, "init", "--directory", tmp_path)
    assert (again.exit_code, "pytorchjob.yaml exists" in again.stderr) == (2, True)
    assert (tmp_path / "Dockerfile").read_text() == "mine"


def test_the_version_of_the_client_needs_no_cluster() -> None:
    assert call(None, "version", "--client").stdout == f"client: {__version__}\n"


def test_all_versions() -> None:
    cluster = FakeCluster()
    cluster.serve("/version", {"gitVersion": "v1.37.0"})
    cluster.serve("/apis/kubeflow.org/v1", {"resources": []})
    operator = {"metadata": {"labels": {"app.kubernetes.io/version": "9.9"}}}
    selector = "app.kubernetes.io%2Fname%3Dpytorchjob-operator"
    cluster.serve(f"/apis/apps/v1/deployments?labelSelector={selector}", {"items": [operator]})
    found = json.loads(call(cluster, "version", "-o", "json").stdout)
    assert found == {"client": __version__, "operator": "9.9", "api": "kubeflow.org/v1", "cluster": "v1.37.0"}


def test_a_cluster_without_an_operator_and_one_that_is_away() -> None:
    cluster = FakeCluster()
    cluster.serve("/version", {"gitVersion": "v1.37.0"})
    assert "operator: not installed" in call(cluster, "version").stdout
    cluster.fail("read", ApiServerUnreachable("the API server x does not answer"))
    result = call(cluster, "version")
    assert (result.exit_code, "cluster: not reachable: the API server x" in result.stdout) == (0, True)
