"""The script of a life for `goodput`: it notes the time of all that it does, and the kernel has its process's start.

A stand-in for torch lies beside it.
"""

from pathlib import Path

import yaml

from benchmarks.suspendable import RUN_PID
from tests.local.torch_beside import write_torch

CRASH, HANG, SUSPEND, STEPS, EVERY = 95, 140, 192, 210, 50
"""The steps at which the script is killed, hangs, and is suspended; all steps; and how often it saves."""
HUNG_SECONDS = 8
SUSPEND_ME, BORN = "suspend me", "born as "
"""What it prints then, and at its start, with its process id behind it."""
JOB, LINES = "job.yaml", "life"

LIFE = f"""
import json, os, signal, time
import torch
from pytorchjob_agent import progress

life = open("{LINES}", "a", buffering=1)

def wrote(what, step, at=None):
    life.write(json.dumps([what, step, time.time() if at is None else at]) + "\\n")

def status(pid):
    fields = open(f"/proc/{{pid}}/stat").read().rpartition(")")[2].split()
    return int(fields[1]), int(fields[19]) / os.sysconf("SC_CLK_TCK")

def started(pid):
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + status(pid)[1]

pod = os.getpid()
while status(pod)[0] != int(os.environ["{RUN_PID}"]):
    pod = status(pod)[0]
before = open("{LINES}").read()
if f'"placed", {{pod}},' not in before:
    wrote("placed", pod, started(pod))
wrote("born", 0, started(os.getpid()))
print("{BORN}" + str(os.getpid()), flush=True)
lives = before.count("born") + 1
time.sleep(2)
first = 0
if os.path.exists("saved"):
    wrote("loads", 0)
    first = torch.load("saved")
    wrote("loaded", first)
for step in range(first + 1, {STEPS} + 1):
    if lives == 1 and step == {CRASH}:
        wrote("crashes", step)
        os.kill(os.getpid(), signal.SIGKILL)
    if lives == 2 and step == {HANG}:
        wrote("hangs", step)
        time.sleep(1000)
    time.sleep(0.25)
    progress(step, total={STEPS})
    wrote("step", step)
    if lives == 3 and step == {SUSPEND}:
        print("{SUSPEND_ME}", flush=True)
    if step % {EVERY} == 0:
        torch.save(step, "new")
        os.replace("new", "saved")
        wrote("saved", step)
wrote("ends", {STEPS})
os._exit(0)
"""


def write(directory: Path) -> None:
    """Write the job, the script and what it imports."""
    (directory / "life.py").write_text(LIFE)
    write_torch(directory, save=1.5, load=2)
    container = {"name": "pytorch", "image": "none", "command": ["pytorchjob-agent", "run", "--", "life.py"]}
    template = {"spec": {"containers": [container]}}
    spec = {
        "nprocPerNode": "1",
        "agent": {"hang": {"progressSeconds": HUNG_SECONDS}},
        "pytorchReplicaSpecs": {"Worker": {"replicas": 1, "restartPolicy": "OnFailure", "template": template}},
    }
    job = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": "life"}, "spec": spec}
    (directory / JOB).write_text(yaml.safe_dump(job))
