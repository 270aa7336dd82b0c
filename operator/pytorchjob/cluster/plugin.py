"""Runs the program that a kubeconfig names as the source of a person's credentials (`users[].user.exec`).

The kubernetes package can do it too. It hides a plugin's output while it waits for a login, gives no certificate to
the request, and logs a failed plugin instead of raising.
"""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytorchjob.cluster.errors import NoCluster

_EXTENSION = "client.authentication.k8s.io/exec"
_LOG_IN = "log in again as your company describes it, then repeat the command"


@dataclass(frozen=True, slots=True)
class Plugin:
    """A kubeconfig's `exec`, the folder of its file, and the cluster that it is for."""

    spec: Mapping[str, Any]
    folder: Path
    cluster: Mapping[str, Any]

    @property
    def command(self) -> str:
        """The program; a path with a slash is relative to the kubeconfig, as for kubectl."""
        name = str(self.spec.get("command") or "")
        return str(self.folder / name) if os.sep in name else name

    def credentials(self) -> dict[str, Any]:
        """Run the program and return its `status`: a token, or a certificate with its key; raises NoCluster."""
        if not self.command:
            raise NoCluster("the kubeconfig's exec plugin has no command", "correct users[].user.exec.command")
        interactive = sys.stdin.isatty() and self.spec.get("interactiveMode") != "Never"
        shown = sys.stderr.isatty()
        argv = [self.command, *map(str, self.spec.get("args") or ())]
        try:
            done = subprocess.run(  # noqa: S603 -- the person's own kubeconfig names it
                argv,
                env=self._environment(interactive),
                stdin=None if interactive else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=None if shown else subprocess.PIPE,
                check=False,
            )
        except OSError as error:
            hint = str(self.spec.get("installHint") or "").strip().split("\n", 1)[0]
            why = error.strerror or str(error)
            remedy = hint or "install it, or choose another context with --context"
            raise NoCluster(f"the kubeconfig's exec plugin {self.command} cannot be started: {why}", remedy) from error
        if done.returncode:
            output = (done.stderr or b"").decode(errors="replace").strip().splitlines()
            why = f": {output[-1]}" if output else ""
            raise NoCluster(f"the kubeconfig's exec plugin {self.command} exited with {done.returncode}{why}", _LOG_IN)
        return self._status(done.stdout)

    def _environment(self, interactive: bool) -> dict[str, str]:
        given = {str(pair["name"]): str(pair["value"]) for pair in self.spec.get("env") or ()}
        spec: dict[str, Any] = {"interactive": interactive}
        if self.spec.get("provideClusterInfo"):
            extensions = self.cluster.get("extensions") or ()
            config = next((item.get("extension") for item in extensions if item.get("name") == _EXTENSION), None)
            fields = {key: value for key, value in self.cluster.items() if key != "extensions"}
            spec["cluster"] = {**fields, **({"config": config} if config else {})}
        info = {"apiVersion": self.spec.get("apiVersion"), "kind": "ExecCredential", "spec": spec}
        return {**os.environ, **given, "KUBERNETES_EXEC_INFO": json.dumps(info)}

    def _status(self, output: bytes) -> dict[str, Any]:
        try:
            status = json.loads(output)["status"]
            usable = bool(status.get("token") or (status.get("clientCertificateData") and status.get("clientKeyData")))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise NoCluster(
                f"the kubeconfig's exec plugin {self.command} printed no ExecCredential", _LOG_IN
            ) from error
        if not usable:
            raise NoCluster(f"the kubeconfig's exec plugin {self.command} printed no token and no certificate", _LOG_IN)
        return dict(status)
