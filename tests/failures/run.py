"""Runs one case of the table with real processes, and judges what people read of it."""

import json
import re
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tests.failures.files import File
from tests.failures.table import Case, Launcher
from tests.local.jobs import Run

_SCRIPT, _MOMENT = "train.py", "moment"
_LONGEST = 240
"""Seconds that only a broken program, or a machine that stands still, needs."""
_PATHS = re.compile(rf"(?:{re.escape(tempfile.gettempdir())}/[\w-]+|{re.escape(str(Path(sys.executable).parent))})/")
_MARKED = re.compile(r"^(\s*)(.*?)  # (here|fails)$", re.MULTILINE)
_STANDALONE = (
    "from pytorchjob_agent import run_standalone\n"
    f"if __name__ == '__main__':\n    run_standalone('{_SCRIPT}', 2).check()\n"
)
_HEAD = """\
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata:
  name: failing
spec:
"""
_ROLE = """\
    {role}:
      replicas: {replicas}
      restartPolicy: Never
      template:
        spec:
          containers:
            - name: pytorch
              image: example.com/train:1
              command: [{command}]
"""
_COMMANDS = {
    Launcher.PYTHON: ("python", 1),
    Launcher.WORKERS: ("python", 1),
    Launcher.TORCHRUN: ("torchrun", 2),
    Launcher.AGENT: ("pytorchjob-agent, run, --", 2),
    Launcher.AGENTS: ("pytorchjob-agent, run, --", 1),
    Launcher.INJECTED: ("torchrun", 1),
}


@dataclass
class Outcome:
    """What a run showed."""

    name: str
    wrong: list[str] = field(default_factory=list)
    """What people should have read and did not."""
    seconds: float = 0.0
    """From the start to the end."""
    wasted: float | None = None
    """From the failure to the end; None if no process could note the failure."""
    report: str = ""

    def to_json(self) -> str:
        """One line, without paths of this machine."""
        fields = {**asdict(self), "report": _PATHS.sub("", self.report)}
        return json.dumps(fields, ensure_ascii=False)


def job_file(launcher: Launcher) -> str:
    """Return the YAML of a job with two ranks."""
    command, processes = _COMMANDS[launcher]
    roles = ["Master", "Worker"] if launcher is Launcher.PYTHON else ["Worker"]
    replicas = 1 if len(roles) == 2 or processes == 2 else 2
    inject = "  agent:\n    inject: true\n" * (launcher is Launcher.INJECTED)
    nproc = f'  nprocPerNode: "{processes}"\n' * (processes > 1)
    filled = (_ROLE.format(role=role, replicas=replicas, command=f"{command}, {_SCRIPT}") for role in roles)
    return f"{_HEAD}{inject}{nproc}  pytorchReplicaSpecs:\n{''.join(filled)}"


def timed(script: str, moment: Path) -> str:
    """Let a script note the time before each marked line; no line moves."""
    note = f"print(__import__('time').monotonic(), file=open({str(moment)!r}, 'a'), flush=True)"
    return _MARKED.sub(lambda found: f"{found[1]}{note}; {found[2]}" if "'a'" not in found[2] else found[0], script)


def run(case: Case, folder: Path) -> Outcome:
    """Run the case in an empty folder."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        script = case.script.replace("{port}", str(taken.getsockname()[1]))
        if script:
            (folder / _SCRIPT).write_text(timed(script, folder / _MOMENT))
        start = time.monotonic()
        text = _standalone(folder) if case.launcher is Launcher.STANDALONE else _job(case, folder)
        end = time.monotonic()
    outcome = Outcome(case.name, seconds=round(end - start, 2), report=text)
    noted = folder / _MOMENT
    if noted.exists():
        outcome.wasted = round(end - min(map(float, noted.read_text().split())), 2)
    outcome.wrong = list(judge(case, script, text))
    return outcome


def run_file(file: File, folder: Path) -> Outcome:
    """Run a job file in an empty folder."""
    (folder / "job.yaml").write_text(file.text)
    (folder / _SCRIPT).write_text(file.script)
    start = time.monotonic()
    process = Run(folder, "run", "job.yaml", "--timeout", str(_LONGEST), "--grace", "2")
    status = process.process.wait()
    shown = process.out + process.err
    outcome = Outcome(file.name, seconds=round(time.monotonic() - start, 2), report=shown[-4000:])
    outcome.wrong = [f"{words!r} is not said" for words in file.says if words not in shown]
    if status != file.status:
        outcome.wrong.append(f"it ended with {status}, not with {file.status}")
    return outcome


def _job(case: Case, folder: Path) -> str:
    (folder / "job.yaml").write_text(job_file(case.launcher))
    process = Run(folder, "run", "job.yaml", "--max-restarts", "0", "--timeout", str(_LONGEST), "--grace", "2")
    process.process.wait()
    shown = process.out + process.err
    _, found, report = shown.partition("failing: Failed after")
    return found + report if found else f"no report:\n{shown[-4000:]}"


def _standalone(folder: Path) -> str:
    (folder / "caller.py").write_text(_STANDALONE)
    done = subprocess.run([sys.executable, "caller.py"], cwd=folder, capture_output=True, text=True, timeout=_LONGEST)
    return done.stderr.rpartition("StandaloneError: ")[2]


def judge(case: Case, script: str, text: str) -> list[str]:
    """Return what is missing in the report of a failure."""
    lines = [line for line in text.splitlines() if "TorchElastic" not in line]
    wanted = {"culprit": case.who, "error": case.says}
    missing = [f"{name}: {words!r} is not said" for name, words in wanted.items() if words not in text]
    ranks = set(re.findall(r"rank \d+(?= \()", text)) - {case.who}
    if case.who.startswith("rank") and ranks:
        missing.append(f"culprit: {ranks} are named")
    if case.launcher is Launcher.STANDALONE:
        return missing
    line = next((n for n, words in enumerate(script.splitlines(), 1) if words.endswith("# here")), None)
    if line is not None and f"{_SCRIPT}:{line}" not in text:
        missing.append(f"place: {_SCRIPT}:{line} is not said")
    if not any(line.startswith("  next: ") and case.then in line for line in lines):
        missing.append(f"next step: {case.then!r} is not said")
    return missing
