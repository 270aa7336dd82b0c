"""Process trees: found and killed whole."""

import os
import signal
import subprocess
import sys
from pathlib import Path

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


LEAVE = "import subprocess; subprocess.Popen(['sleep', '601'], start_new_session=True)"
LEAVES = f"""
import os, subprocess, sys
from pytorchjob_agent.system import processes
processes.adopt_orphans()
other = subprocess.Popen(["sleep", "600"])
child = os.fork()
if child == 0:
    env = dict(os.environ, OURS="/tmp/pytorchjob-agent-1/round-2")
    subprocess.run([sys.executable, "-c", {LEAVE!r}], env=env)
    left = lambda: [pid for pid in processes.left_behind("/tmp/pytorchjob-agent-1") if processes.is_alive(pid)]
    print(len(left()), other.pid in left(), flush=True)
    processes.kill_all(left, timeout=50)
    print(len(left()), flush=True)
    os._exit(0)
os.waitpid(child, 0)
print(processes.is_alive(other.pid))
other.kill()
"""


def test_of_the_parents_other_children_only_those_are_found_that_a_child_of_ours_has_left() -> None:
    env = os.environ | {"PYTHONPATH": "operator"}
    done = subprocess.run([sys.executable, "-c", LEAVES], env=env, capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == ["1", "False", "0", "True"], done.stderr
