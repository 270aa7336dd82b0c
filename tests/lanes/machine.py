"""What this machine can do, and which kinds of tests it therefore cannot run."""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_OLD_PYTHON = ">=3.11,<3.13"
_SECONDS = 60
_NODES = "io.x-k8s.kind.cluster"
"""The label that kind gives its nodes."""
_GO = "Go is missing"
_INSTALL_GO = "install Go 1.24 or later (https://go.dev/dl)"


@dataclass(frozen=True)
class Machine:
    """The facts that decide which tests can run."""

    root: bool = True
    docker: bool = True
    """A Docker daemon answers this user."""
    docker_installable: bool = True
    """The programs of a daemon are installed, or apt-get can install them."""
    go: bool = True
    helm: bool = True
    """helm and kubectl are installed or in the cache."""
    old_python: bool = True
    """A Python that the oldest supported torch knows."""
    existing_cluster: bool = False
    """PROVIDER=existing: the tests use the cluster of KUBECONFIG."""
    kubeconfig: bool = False
    has_cluster: bool = False
    """A cluster of `make cluster` is there already, made from this checkout or from another one."""


@dataclass(frozen=True)
class Lack:
    """Why a kind of tests cannot run here, and what to do about it."""

    why: str
    remedy: str


def lacks(machine: Machine) -> dict[str, Lack]:
    """Return what is missing, by the marker of the tests that need it."""
    found = {
        "cluster": _cluster(machine),
        "apiserver": None if machine.go else Lack(_GO, _INSTALL_GO),
        "helm": None
        if machine.go or machine.helm
        else Lack("helm or kubectl is missing, and Go to build them", _INSTALL_GO),
        "torch_oldest": None if machine.old_python else Lack("Python 3.11 or 3.12 is missing", "install Python 3.12"),
    }
    return {kind: lack for kind, lack in found.items() if lack}


def _cluster(machine: Machine) -> Lack | None:
    if machine.existing_cluster:
        if not machine.kubeconfig:
            return Lack("PROVIDER=existing, but KUBECONFIG is not set", "set KUBECONFIG")
        return None if machine.helm or machine.go else Lack("helm or kubectl is missing", "install helm and kubectl")
    if not machine.go:
        return Lack(f"{_GO}: kind, kubectl and helm are built with it", _INSTALL_GO)
    if machine.docker:
        return None
    if not machine.root:
        return Lack("no Docker daemon answers, and only root can start one", "start Docker, or run as root")
    if not machine.docker_installable:
        return Lack("Docker is missing, and there is no apt-get to install it", "install Docker")
    return None


def detect(env: Mapping[str, str]) -> Machine:
    """Look at this machine; nothing is started or changed."""
    cache = Path(
        env.get("PYTORCHJOB_CACHE") or Path(env.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pytorchjob-operator"
    )
    path = f"{cache / 'bin'}{os.pathsep}{env.get('PATH', '')}"
    return Machine(
        root=os.geteuid() == 0,
        docker=_works("docker", "info"),
        docker_installable=any(map(shutil.which, ("dockerd", "apt-get"))),
        go=_works("go", "version"),
        helm=all(shutil.which(name, path=path) for name in ("helm", "kubectl")),
        old_python=_works(
            str(Path(sys.executable).parent / "uv"),
            "python",
            "find",
            "--no-python-downloads",
            "--no-project",
            "--system",
            _OLD_PYTHON,
        ),
        existing_cluster=env.get("PROVIDER") == "existing",
        kubeconfig=bool(env.get("KUBECONFIG")),
        has_cluster=bool(_says("docker", "ps", "--all", "--quiet", "--filter", f"label={_NODES}")),
    )


def _works(*command: str) -> bool:
    return _says(*command) is not None


def _says(*command: str) -> bytes | None:
    """Return what a command prints; None if it fails."""
    try:
        done = subprocess.run(command, capture_output=True, timeout=_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None
