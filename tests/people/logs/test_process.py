"""`pytorchjob logs -f` as a process."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.people.fake_cluster import a_job, a_pod
from tests.people.logs.log_server import LogServer


def test_ctrl_c_ends_with_130(tmp_path: Path) -> None:
    server = LogServer(seed=1, cuts=0)
    server.put_job(a_job())
    pod = a_pod("digits", "master-0")
    pod["metadata"]["namespace"] = "team"
    server.put_pod(pod)
    server.print("digits-master-0", ["[rank0]: step=1"])
    with server.running(tmp_path) as kubeconfig:
        command = [sys.executable, "-m", "pytorchjob", "logs", "digits", "-f", "--kubeconfig", str(kubeconfig)]
        env = {**os.environ, "PYTHONPATH": str(Path.cwd() / "operator")}
        with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            assert process.stdout.readline() == "[rank0] step=1\n"
            process.send_signal(signal.SIGINT)
            assert (process.wait(), process.stderr.read()) == (130, "")
