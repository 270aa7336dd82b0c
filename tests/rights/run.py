"""One run of the end-to-end tests: where it begins in the audit log, and what the comparison says at its end."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.lanes.plan import NOT_APPLICABLE
from tests.rights.compare import differences
from tests.rights.exceptions import EXCEPTIONS, Exemption
from tests.rights.granted import granted
from tests.rights.requests import requests
from tests.rights.table import page

SPACE, ACCOUNT = "pytorchjob-system", "pytorchjob-operator"
USER = f"system:serviceaccount:{SPACE}:{ACCOUNT}"
_NO_LOG = "the API server of this cluster writes no audit log here; only the cluster of `make cluster` does"
_NOT_ENDED = "not every end-to-end test has passed since the latest run began; `make test` runs all of them"
_KINDS = "clusterroles,clusterrolebindings,roles,rolebindings"


@dataclass(frozen=True)
class Run:
    """Files below `out`, and the cluster that they belong to; each step returns an exit code."""

    out: Path
    kubectl: Callable[..., str]
    """Returns what kubectl prints."""
    uninstall: Callable[[], object]
    exceptions: tuple[Exemption, ...] = EXCEPTIONS

    @property
    def log(self) -> Path:
        return self.out / "audit/audit.log"

    @property
    def table(self) -> Path:
        return self.out / "rights/table.md"

    @property
    def _began(self) -> Path:
        return self.out / "rights/began.json"

    @property
    def _roles(self) -> Path:
        return self.out / "rights/roles"

    def begin(self, has_log: bool = True) -> int:
        """Remember where the run begins in the log.

        An earlier installation is removed, because an operator that finds its Secret does not create it.
        """
        self.table.parent.mkdir(parents=True, exist_ok=True)
        self._began.unlink(missing_ok=True)
        if not has_log or not self.log.exists():
            return self._does_not_apply(_NO_LOG, 0)
        if self.kubectl("get", "namespace", SPACE, "--ignore-not-found", "-o", "name"):
            self.uninstall()
            self.kubectl("delete", "namespace", SPACE)
        for roles in self._roles.glob("*.json"):
            roles.unlink()
        self._began.write_text(json.dumps({"bytes": self.log.stat().st_size}))
        return self._does_not_apply(_NOT_ENDED, 0)

    def keep_roles(self) -> None:
        """Remember the roles of an installation: a later test may install the operator with other values."""
        self._roles.mkdir(parents=True, exist_ok=True)
        number = len(list(self._roles.glob("*.json")))
        (self._roles / f"{number}.json").write_text(self._present_roles())

    def check(self) -> int:
        """Compare the rights of all installations with the requests since the beginning, and write the table."""
        if not self._began.exists():
            return self._does_not_apply(_NO_LOG, NOT_APPLICABLE)
        start = json.loads(self._began.read_text())["bytes"]
        if self.log.stat().st_size < start:
            print(f"{self.log} is shorter than when the run began: the cluster was created again, or the log rotated")
            return 1
        with self.log.open("rb") as file:
            file.seek(start)
            counted = requests(file, USER)
        kept = [path.read_text() for path in self._roles.glob("*.json")]
        installed = [json.loads(text)["items"] for text in (*kept, self._present_roles())]
        rights = sorted({right for objects in installed for right in granted(objects, SPACE, ACCOUNT)})
        found = differences(rights, counted, self.exceptions, SPACE)
        self.table.write_text(page(rights, counted, self.exceptions, found))
        self.show()
        return 1 if found or not rights else 0

    def show(self) -> int:
        """Print the table of the latest run."""
        print(
            self.table.read_text() if self.table.exists() else "there is no table yet: `make test` writes it\n", end=""
        )
        return 0

    def _present_roles(self) -> str:
        return self.kubectl("get", _KINDS, "--all-namespaces", "-o", "json")

    def _does_not_apply(self, reason: str, code: int) -> int:
        self.table.parent.mkdir(parents=True, exist_ok=True)
        self.table.write_text(f"The operator's rights cannot be compared with its requests: {reason}.\n")
        self.show()
        return code
