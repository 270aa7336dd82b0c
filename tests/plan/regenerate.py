"""Writes the plan beside each golden case: `PYTHONPATH=operator python -m tests.plan.regenerate`; read the diff."""

from pathlib import Path
from typing import Any

import yaml

from pytorchjob_operator.model import PyTorchJob
from pytorchjob_operator.observed import Observed
from pytorchjob_operator.plan import make_plan
from pytorchjob_operator.plan.writes import manifests
from tests.factories import NOW

CASES = Path(__file__).parent / "cases"
_OUT = ".plan.yaml"


class _Plain(yaml.SafeDumper):
    """Everything in full: the pods of a job share parts of their template, which YAML would show as anchors."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def jobs() -> list[Path]:
    """The files that hold a job."""
    return sorted(path for path in CASES.glob("*.yaml") if not path.name.endswith(_OUT))


def golden(job: Path) -> Path:
    """The file that holds its plan."""
    return job.with_name(job.stem + _OUT)


def planned(path: Path) -> dict[str, Any]:
    """The whole plan for a job that nobody has seen yet, as plain values."""
    plan = make_plan(Observed(job=PyTorchJob.model_validate(yaml.safe_load(path.read_text())), now=NOW))
    return {
        "reason": plan.reason,
        "status": plan.status.to_api() if plan.status else None,
        "events": [
            {"type": event.type.value, "reason": str(event.reason), "message": event.message} for event in plan.events
        ],
        "wakeAt": plan.wake_at,
        "objects": manifests(plan),
    }


def main() -> None:
    """Write every plan anew."""
    for path in jobs():
        golden(path).write_text(yaml.dump(planned(path), Dumper=_Plain, sort_keys=False, width=120))


if __name__ == "__main__":
    main()
