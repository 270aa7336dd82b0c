"""`python -m tests.rights begin|check|print`: the rights of the operator and its requests in one run of the e2e tests.

The cluster lane of `make test` runs `begin` before its tests and `check` after them, if all have passed.
`make rights` prints the table of the latest run.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.apiserver.cluster import BIN
from tests.rights.run import Run

ROOT = Path(__file__).parents[2]


def main(action: str) -> int:
    """Run one step; return its exit code."""
    run = this_run()
    if action == "begin":
        return run.begin(os.environ.get("PROVIDER") != "existing")
    return {"check": run.check, "print": run.show}[action]()


def this_run() -> Run:
    """Return the run of this checkout, on the cluster of `make cluster`."""
    return Run(ROOT / "out", kubectl, uninstall)


def kubectl(*arguments: str) -> str:
    """Return what kubectl prints about the cluster of `make cluster`."""
    program = shutil.which("kubectl", path=f"{BIN}{os.pathsep}{os.environ['PATH']}") or "kubectl"
    done = subprocess.run([program, *arguments], env=_environment(), stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout


def uninstall() -> None:
    """Remove the operator as `make uninstall` does."""
    subprocess.run([str(ROOT / "install/install.sh"), "uninstall"], env=_environment(), check=True)


def _environment() -> dict[str, str]:
    return {**os.environ, "KUBECONFIG": str(ROOT / "out/kubeconfig")}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
