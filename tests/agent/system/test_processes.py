"""Process trees: found and killed whole."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pytorchjob_agent.system import processes
from tests.waiting import until

# A child that makes a grandchild in a session of its own, and says when both are there.
TREE = (
    "import subprocess, time; subprocess.Popen(['sleep', '600'], start_new_session=True);"
    " print(flush=True); time.sleep(600)"
)
# In a process of its own: the test's own children are not to be reaped.
KILL = f"""
import os, subprocess, sys
from pytorchjob_agent.system import processes
processes.adopt_orphans()
child = subprocess.Popen([sys.executable, "-c", {TREE!r}], stdout=subprocess.PIPE)
child.stdout.readline()
below = processes.descendants(os.getpid())
ended = processes.kill_below(os.getpid(), timeout=50)
print(len(below), sorted(below) == sorted(ended), set(ended.values()), processes.descendants(os.getpid()))
os._exit(0)
"""


def test_a_whole_tree_is_killed_and_reaped() -> None:
    env = os.environ | {"PYTHONPATH": "operator"}
    done = subprocess.run([sys.executable, "-c", KILL], env=env, capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "2 True {-9} []", done.stderr


def test_a_process_that_ended_has_nothing_below() -> None:
    child = subprocess.Popen(["true"])
    child.wait()
    assert processes.descendants(child.pid) == []


# Its main thread ends, which makes the process a zombie; the other one goes on, with its files and its memory.
WITHOUT_A_LEADER = (
    "import ctypes, threading, time; threading.Thread(target=time.sleep, args=(600,)).start();"
    " print(flush=True); ctypes.CDLL(None).pthread_exit(None)"
)


def test_a_zombie_lives_until_its_last_thread_has_ended() -> None:
    with subprocess.Popen([sys.executable, "-c", WITHOUT_A_LEADER], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        until(lambda: ") Z " in Path(f"/proc/{child.pid}/stat").read_text())
        assert processes.is_alive(child.pid)
        child.kill()
        until(lambda: not processes.is_alive(child.pid))
        assert child.wait() == -signal.SIGKILL
    assert not processes.is_alive(child.pid)


@pytest.mark.parametrize(("noted", "found"), [("os.getppid()", "parent"), ("1", "itself"), ("None", "itself")])
def test_only_a_parent_that_adopts_counts_as_the_top(noted: str, found: str) -> None:
    """Any other process has children that are none of ours: after the parent's death it is the machine's first one."""
    note = "" if noted == "None" else f"processes.be_adopted({noted});"
    code = f"import os; from pytorchjob_agent.system import processes; {note} print(processes.top(), os.getpid())"
    env = os.environ | {"PYTHONPATH": "operator"}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    top, own = map(int, done.stdout.split())
    assert top == {"parent": os.getpid(), "itself": own}[found]
