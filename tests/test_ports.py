"""Ports of tests that run side by side."""

import subprocess
import sys
from pathlib import Path

from tests.ports import free_port

ROOT = Path(__file__).parent.parent
SHOW = "import os, sys; from tests.ports import free_port; print([free_port() for _ in range(20)], flush=True); input()"


def test_no_port_is_given_out_twice() -> None:
    assert len({free_port() for _ in range(50)}) == 50


def test_processes_at_the_same_time_get_different_ports() -> None:
    command = [sys.executable, "-c", SHOW]
    children = [
        subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(3)
    ]
    found = [port for child in children if child.stdout for port in child.stdout.readline().strip("[]\n").split(", ")]
    for child in children:
        child.communicate("\n")
    assert len(found) == len(set(found)) == 60
