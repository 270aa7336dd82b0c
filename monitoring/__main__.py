"""Write the generated files of monitoring into the chart: dashboards, alerts, and the series of single jobs."""

import json
from pathlib import Path
from typing import Any

import yaml

from monitoring.alerts import rules
from monitoring.fleet import FLEET
from monitoring.job import JOB
from monitoring.job_series import custom_resource_state

FILES = Path(__file__).parents[1] / "charts" / "pytorchjob-operator" / "files" / "monitoring"
_NOTE = "# Written by `python -m monitoring` (make generate).\n"


def generated() -> dict[str, str]:
    """Return the text of each generated file, by its name."""
    dashboards = {
        f"{dashboard.uid}.json": json.dumps(dashboard.to_json(), indent=1) + "\n" for dashboard in (FLEET, JOB)
    }
    return {
        **dashboards,
        "alerts.yaml": _NOTE + _yaml(rules()),
        "kube-state-metrics.yaml": _NOTE + _yaml(custom_resource_state()),
    }


def _yaml(value: Any) -> str:
    return yaml.safe_dump(value, sort_keys=False, width=110)


def main() -> None:
    """Write every file, and remove what no longer belongs to them."""
    FILES.mkdir(parents=True, exist_ok=True)
    texts = generated()
    for path in FILES.iterdir():
        if path.name not in texts:
            path.unlink()
    for name, text in texts.items():
        (FILES / name).write_text(text)


if __name__ == "__main__":
    main()
