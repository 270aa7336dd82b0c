"""install/install.sh without a cluster: what it runs and what it refuses. Its programs only write down their calls."""

import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
COPIED = (
    "install/install.sh",
    "e2e/cluster/common.sh",
    "e2e/cluster/tools/kubernetes/go.mod",
    "charts/pytorchjob-operator/Chart.yaml",
)
SCRIPTS = ("binaries.sh", "cluster.sh", "docker.sh", "images.sh", "load_images.py")
PROGRAMS = ("docker", "helm", "kind", "kubectl", "python3")
NEEDED = ("awk", "basename", "bash", "dirname", "head", "mkdir", "sed")
STUB = """#!/bin/bash
call="${0##*/} $*${PLATFORMS:+ for $PLATFORMS}"
echo "$call" >>"$CALLS"
while IFS='|' read -r pattern status text; do
    if [[ $call == $pattern ]]; then
        [ -z "$text" ] || printf '%b\\n' "$text"
        exit "$status"
    fi
done <"$ANSWERS"
"""
KIND = {"kubectl get nodes*": "kind://docker/mine/mine-control-plane kind://docker/mine/mine-worker"}
REMOTE = {"kubectl get nodes*": "aws:///zone/i-1"}
NEW = {"helm status*": 1}
NO_CLUSTER = {"kubectl --request-timeout*": 1}
FOREIGN = {"kubectl get crd*": "CustomResourceDefinition/"}
OURS = {"kubectl get crd*": "CustomResourceDefinition/pytorchjob-operator"}
BUILT = {"docker image inspect*": "sha256:2"}
PUSH = "python3 -m release.push"
"""The step that pushes; tests/release runs it."""


@dataclass(frozen=True)
class Done:
    """How a run of the script ended, and the programs that it called."""

    status: int
    output: str
    error: str
    calls: list[str]

    def called(self, start: str) -> list[str]:
        return [call for call in self.calls if call.startswith(start)]


Run = Callable[..., Done]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Run an action with variables; `answers` gives a program's output or exit status by the pattern of its call."""
    tree, programs = tmp_path / "tree", tmp_path / "bin"
    programs.mkdir()
    for path in COPIED:
        (tree / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / path, tree / path)
    for stub in (*(tree / "e2e/cluster" / name for name in SCRIPTS), *(programs / name for name in PROGRAMS)):
        stub.write_text(STUB)
        stub.chmod(0o755)
    for name in NEEDED:
        (programs / name).symlink_to(shutil.which(name) or name)

    def start(action: str, answers: dict[str, str | int], without: str = "", **variables: str) -> Done:
        lines = (f"{call}|{answer}|\n" if answer == 1 else f"{call}|0|{answer}\n" for call, answer in answers.items())
        (tmp_path / "answers").write_text("".join(lines))
        (tmp_path / "calls").touch()
        if without:
            (programs / without).unlink()
        env = {
            "PATH": str(programs),
            "HOME": str(tmp_path),
            "CALLS": str(tmp_path / "calls"),
            "ANSWERS": str(tmp_path / "answers"),
            **variables,
        }
        command = [str(tree / "install/install.sh"), action]
        done = subprocess.run(command, cwd=tree, env=env, capture_output=True, text=True, timeout=30, check=False)
        return Done(done.returncode, done.stdout, done.stderr, (tmp_path / "calls").read_text().splitlines())

    return start


def test_a_kind_cluster_gets_the_images_into_its_nodes(run: Run) -> None:
    done = run("install", KIND | BUILT | NEW, KUBECONFIG="mine")
    assert done.status == 0, done.error
    assert done.called("images.sh") == ["images.sh agent operator examples"]
    assert done.called("load_images.py") == ["load_images.py --images operator,examples mine-control-plane mine-worker"]
    (upgrade,) = done.called("helm upgrade")
    assert "--set image.repository=pytorchjob/operator --set image.tag=dev --set image.pullPolicy=Never" in upgrade
    assert "--set-string podAnnotations.image-id=sha256:2" in upgrade
    assert not done.called("docker push")
    assert done.output.splitlines()[-3:] == [
        "install: pytorchjob-operator is ready in namespace pytorchjob-system. Next:",
        "  kubectl apply -f examples/digits/pytorchjob.yaml",
        "  kubectl get ptj -w",
    ]


def test_any_other_cluster_reads_the_images_from_a_registry(run: Run) -> None:
    done = run("install", REMOTE | BUILT | NEW, KUBECONFIG="mine", REGISTRY="r.test/a")
    assert done.status == 0, done.error
    assert done.called("python3") == [f"{PUSH} for native"]
    assert not done.called("load_images.py")
    (upgrade,) = done.called("helm upgrade")
    assert upgrade.endswith("/out/release/values.yaml")
    assert "  kubectl apply -f out/release/examples/digits/pytorchjob.yaml" in done.output.splitlines()


def test_more_platforms_are_pushed_on_request(run: Run) -> None:
    both = "linux/amd64,linux/arm64"
    done = run("install", REMOTE | BUILT | NEW, KUBECONFIG="mine", REGISTRY="r.test/a", PLATFORMS=both)
    assert done.called("python3") == [f"{PUSH} for {both}"]


def test_arguments_of_helm_are_passed_on(run: Run) -> None:
    more = {"HELM_ARGS": "--set replicas=1"}
    done = run("install", REMOTE | BUILT | NEW, KUBECONFIG="mine", REGISTRY="r.test/a", **more)
    (upgrade,) = done.called("helm upgrade")
    assert upgrade.endswith("/out/release/values.yaml --set replicas=1")


def test_without_kubeconfig_the_cluster_of_make_cluster_is_brought_up(run: Run) -> None:
    done = run("install", NO_CLUSTER | KIND | BUILT | NEW)
    assert done.status == 0, done.error
    assert done.called("cluster.sh") == ["cluster.sh up"]
    assert "  export KUBECONFIG=" in done.output


def test_a_cluster_that_another_checkout_brought_up_is_used(run: Run) -> None:
    done = run("install", {"docker ps*": "1f", "kind get kubeconfig*": "apiVersion: v1"} | KIND | BUILT | NEW)
    assert done.status == 0, done.error
    assert done.called("kind") == ["kind get kubeconfig --name pytorchjob"]
    assert not done.called("cluster.sh")


def test_only_the_chart_is_installed_with_the_images_that_are_there(run: Run) -> None:
    done = run("chart", KIND | BUILT | NEW, KUBECONFIG="mine")
    assert done.status == 0, done.error
    assert not done.called("images.sh")
    assert "image.repository=pytorchjob/operator" in done.called("helm upgrade")[0]


def test_the_definition_of_another_installation_is_taken_over_on_request(run: Run) -> None:
    done = run("install", KIND | BUILT | NEW | FOREIGN, KUBECONFIG="mine", HELM_ARGS="--take-ownership")
    assert done.status == 0, done.error
    assert done.called("helm upgrade")[0].endswith(" --take-ownership")


def test_a_definition_that_an_uninstalled_release_left_is_ours(run: Run) -> None:
    assert run("install", KIND | BUILT | NEW | OURS, KUBECONFIG="mine").status == 0


def test_push_shows_how_the_chart_takes_the_images(run: Run) -> None:
    done = run("push", BUILT, REGISTRY="r.test/a")
    assert done.status == 0, done.error
    assert done.called("python3") == [PUSH]
    assert not done.called("helm")
    assert "--create-namespace --values out/release/values.yaml" in done.output


def test_uninstall_reports_what_stays(run: Run) -> None:
    done = run("uninstall", {}, KUBECONFIG="mine")
    assert done.status == 0, done.error
    assert done.called("helm") == [
        "helm uninstall pytorchjob-operator --namespace pytorchjob-system --ignore-not-found --wait"
    ]
    assert "all jobs stay" in done.output


REFUSED = [
    pytest.param("install", REMOTE | NEW, {"KUBECONFIG": "mine"}, "make install REGISTRY=", id="no registry"),
    pytest.param("push", {}, {}, "make push REGISTRY=", id="nowhere to push to"),
    pytest.param("install", NO_CLUSTER, {"KUBECONFIG": "mine"}, "KUBECONFIG=mine does not answer", id="no answer"),
    pytest.param("install", KIND | NEW | FOREIGN, {"KUBECONFIG": "mine"}, "docs/migrating.md", id="v1's definition"),
    pytest.param("uninstall", NO_CLUSTER, {}, "set KUBECONFIG", id="nothing to uninstall from"),
    pytest.param("instal", {}, {}, "use install, push, uninstall or chart", id="an unknown action"),
]


@pytest.mark.parametrize(("action", "answers", "variables", "words"), REFUSED)
def test_refuses_before_anything_is_built(
    run: Run, action: str, answers: dict[str, str | int], variables: dict[str, str], words: str
) -> None:
    done = run(action, answers, **variables)
    assert (done.status, words in done.error, len(done.error.splitlines())) == (1, True, 1), done.error
    assert not done.called("images.sh")
    assert not done.called("helm upgrade")


def test_a_missing_program_is_named_where_it_cannot_be_built(run: Run) -> None:
    done = run("install", KIND, without="helm", KUBECONFIG="mine")
    assert (done.status, "helm is missing: install helm, or Go 1.24" in done.error) == (1, True), done.error


@pytest.mark.parametrize("action", ["push", "install"])
def test_nothing_follows_a_push_that_failed(run: Run, action: str) -> None:
    done = run(action, {"python3*": 1} | REMOTE | BUILT | NEW, KUBECONFIG="mine", REGISTRY="r.test/a")
    assert (done.status, done.called("helm upgrade"), "--values" in done.output) == (1, [], False), done.error


def test_pods_that_do_not_start_are_shown(run: Run) -> None:
    done = run("install", {"helm upgrade*": 1, "*get pods": "x 0/1 Pending"} | KIND | BUILT | NEW, KUBECONFIG="mine")
    assert done.status == 1
    assert "x 0/1 Pending" in done.error
    assert "describe pods" in done.error
