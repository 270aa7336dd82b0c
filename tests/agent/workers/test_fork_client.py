"""A forked worker is what a new interpreter would be: each program runs in both ways, and what shows is the same."""

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from pytorchjob_agent.system import processes
from pytorchjob_agent.workers.fork_client import ForkedWorker, ForkServer
from tests.waiting import until


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    """A fork server without torch: what it is asked here does not depend on what it has imported."""
    one = ForkServer.start(["json", "multiprocessing.queues"])
    yield one
    one.close()


@pytest.fixture(scope="module", params=[False, True], ids=["forked", "ready"])
def either(server: ForkServer, request: pytest.FixtureRequest) -> Iterator[ForkServer]:
    """The same, and one whose processes wait for their programs."""
    if not request.param:
        yield server
        return
    one = ForkServer.start(["json", "multiprocessing.queues"])
    one.makes_ready = True
    assert one.wait(60)
    yield one
    one.close()


@dataclass(frozen=True)
class Outcome:
    """All that shows of a process."""

    code: int
    out: str
    err: str


def fork(server: ForkServer, command: list[str], env: dict[str, str], folder: Path) -> ForkedWorker | None:
    """Ask for a worker with its output in files; if one waits for its program, it is that one."""
    server.prepare(1, 0.0)
    waiting = server.pids()
    with open(folder / "out", "w") as out, open(folder / "err", "w") as err:
        worker = server.popen([sys.executable, "-u", *command], {"LOCAL_RANK": "0", **env}, out, err)
    assert worker is None or (worker.pid in waiting) == server.makes_ready
    return worker


def warm(server: ForkServer, command: list[str], env: dict[str, str], folder: Path) -> Outcome:
    """Run it to its end, forked."""
    worker = fork(server, command, env, folder)
    assert worker is not None
    return Outcome(worker.wait(60), (folder / "out").read_text(), (folder / "err").read_text())


def cold(command: list[str], env: dict[str, str], folder: Path) -> Outcome:
    """Run it to its end, as torch starts its workers."""
    with open(folder / "out", "w") as out, open(folder / "err", "w") as err:
        worker = subprocess.Popen(
            [sys.executable, "-u", *command], env=env, stdout=out, stderr=err, start_new_session=True
        )
    return Outcome(worker.wait(60), (folder / "out").read_text(), (folder / "err").read_text())


@pytest.fixture
def same(either: ForkServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> "Same":
    """Run programs in both ways, in a folder of their own."""
    monkeypatch.chdir(tmp_path)
    return Same(either, tmp_path)


@dataclass
class Same:
    """Runs a program in both ways and compares."""

    server: ForkServer
    folder: Path

    def write(self, name: str, source: str, encoding: str = "utf-8") -> Path:
        """Put a file into the folder."""
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(textwrap.dedent(source), encoding=encoding)
        return path

    def run(self, *command: str, **env: str) -> Outcome:
        """Return what both ways give."""
        round_ = {**os.environ, "LOCAL_RANK": "0", "RANK": "3", **env}
        forked = warm(self.server, list(command), round_, self.folder)
        fresh = cold(list(command), round_, self.folder)
        assert forked.out.splitlines() == fresh.out.splitlines()
        assert forked == fresh
        return forked


@pytest.mark.parametrize(
    ("source", "code"),
    [
        pytest.param("pass", 0, id="its end"),
        pytest.param("import sys; sys.exit()", 0, id="exit without a code"),
        pytest.param("import sys; sys.exit(7)", 7, id="exit with a code"),
        pytest.param("import sys; sys.exit(300)", 44, id="exit with a code that is too large"),
        pytest.param("import sys; sys.exit('the reason')", 1, id="exit with words"),
        pytest.param("import os; os._exit(5)", 5, id="exit at once"),
        pytest.param("import os; os.kill(os.getpid(), 9)", -9, id="SIGKILL"),
        pytest.param("import os; os.kill(os.getpid(), 15)", -15, id="SIGTERM"),
        pytest.param("import os; os.abort()", -6, id="abort"),
        pytest.param("raise KeyboardInterrupt", -2, id="Ctrl-C"),
        pytest.param("def f():\n    1 / 0\nf()", 1, id="an exception"),
        pytest.param("try:\n    1 / 0\nexcept Exception:\n    {}['x']", 1, id="an exception while handling one"),
        pytest.param("raise ExceptionGroup('both', [ValueError(1), OSError(2)])", 1, id="a group of exceptions"),
        pytest.param("a = = 1", 1, id="no Python"),
        pytest.param("import threading\nthreading.Thread(target=lambda: 1 / 0).start()", 0, id="one in a thread"),
    ],
)
def test_the_end_and_what_is_said_of_it(same: Same, source: str, code: int) -> None:
    same.write("train.py", source)
    assert same.run("train.py").code == code


HOOK = """
import sys, traceback
def hook(kind, value, trace):
    print("hook", kind.__name__, [frame.name for frame in traceback.extract_tb(trace)], file=sys.stderr)
sys.excepthook = hook
def f():
    raise OSError
f()
"""
ORDER = """
import atexit, sys, threading, time
atexit.register(print, "last")
atexit.register(print, "before")
print("err", file=sys.stderr)
print("no end of line", end="")
threading.Thread(target=lambda: (time.sleep(0.1), print("thread"))).start()
raise SystemExit(3)
"""
FACTS = """
import gc, multiprocessing, os, resource, signal, sys, threading
print(sys.argv, sys.orig_argv, sys.path, sys.flags, sys.warnoptions, sys.executable)
print(sorted(globals()), __name__, __file__, __spec__ and __spec__.origin, __package__)
print(__doc__, __builtins__, __loader__.path)
print([signal.getsignal(one) for one in sorted(signal.valid_signals())], signal.pthread_sigmask(0, []))
print(os.getcwd(), os.umask(0), os.getsid(0) == os.getpid() == os.getpgid(0), resource.getrlimit(7))
print(sorted(os.environ.items()))
print(sorted(int(fd) for fd in os.listdir("/proc/self/fd")), os.path.samestat(os.fstat(0), os.stat("/dev/stdin")))
for stream in (sys.stdin, sys.stdout, sys.stderr):
    print(stream.encoding, stream.errors, stream.line_buffering, getattr(stream, "write_through", None))
print(threading.current_thread() is threading.main_thread(), threading.active_count())
print(gc.isenabled(), gc.get_threshold())
print(multiprocessing.current_process().name, multiprocessing.parent_process(), multiprocessing.get_start_method())
import warnings
warnings.warn("old", DeprecationWarning)
"""


@pytest.mark.parametrize(
    ("source", "args", "words"),
    [
        pytest.param(HOOK, [], ["hook OSError ['<module>', 'f']"], id="an excepthook of the user's own"),
        pytest.param(ORDER, [], ["err\n", "no end of line", "thread\nbefore\nlast"], id="threads, atexit, order"),
        pytest.param(
            FACTS, ["--lr", "1 2", "", "ö", "-m"], ["'1 2'", "DeprecationWarning"], id="what it sees of itself"
        ),
    ],
)
def test_what_a_program_sees_and_says(same: Same, source: str, args: list[str], words: list[str]) -> None:
    same.write("train.py", source)
    done = same.run("train.py", *args)
    assert [word for word in words if word not in done.out + done.err] == []


CHILDREN = """
import multiprocessing, pickle, sys
class Thing:
    pass
def work(queue, number):
    queue.put((number, __name__, type(pickle.loads(pickle.dumps(Thing()))).__name__))
if __name__ == "__main__":
    print("main", flush=True)
    context = multiprocessing.get_context(sys.argv[1])
    queue = context.SimpleQueue()
    children = [context.Process(target=work, args=(queue, number)) for number in range(2)]
    for child in children:
        child.start()
    print(sorted(queue.get() for _ in children))
    for child in children:
        child.join()
    print([child.exitcode for child in children])
"""


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
@pytest.mark.parametrize("module", [pytest.param(False, id="script"), pytest.param(True, id="module")])
def test_its_own_processes(same: Same, method: str, module: bool) -> None:
    same.write("train.py", CHILDREN)
    done = same.run(*(["-m", "train"] if module else ["train.py"]), method)
    assert done.code == 0, done.err
    assert "[0, 0]" in done.out


def test_a_neighbour_is_imported_and_a_script_of_another_folder_finds_its_own(same: Same) -> None:
    same.write("code/train.py", "import near; print(near.__file__)")
    same.write("code/near.py", "")
    same.write("near.py", "")
    (same.folder / "link.py").symlink_to("code/train.py")
    assert same.run("code/train.py").out == same.run("link.py").out == f"{same.folder}/code/near.py\n"


def test_modules(same: Same) -> None:
    same.write("pkg/__init__.py", "print('init')")
    same.write("pkg/__main__.py", FACTS.replace("__loader__.path", "__spec__.name"))
    same.write("pkg/bad.py", "def f():\n    1 / 0\nf()")
    assert "pkg.__main__" in same.run("-m", "pkg", "-x").out
    assert "pkg/bad.py" in same.run("-m", "pkg.bad").err
    assert "No module named" in same.run("-m", "pkg.absent").err


def test_a_file_that_is_not_there_and_one_in_another_encoding(same: Same) -> None:
    assert same.run("absent.py").code == 2
    same.write("train.py", "# coding: latin-1\nprint(ascii('é'))", encoding="latin-1")
    assert "xe9" in same.run("train.py").out


def test_variables_of_a_round_are_the_workers_only(same: Same) -> None:
    same.write("train.py", "import os; print(os.environ['RANK'], os.environ.get('ROUND'), os.environb.get(b'RAW'))")
    raw = os.fsdecode(b"\xff=1")
    assert same.run("train.py", RANK="0", ROUND="1", RAW=raw).out == "0 1 b'\\xff=1'\n"
    assert same.run("train.py", RANK="1").out == "1 None None\n"


def test_forks_share_no_random_numbers(server: ForkServer, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import random, multiprocessing\nprint(random.random(), multiprocessing.current_process().authkey)"
    )
    outcomes = [warm(server, [str(script)], {**os.environ}, tmp_path) for _ in range(2)]
    assert outcomes[0].out != outcomes[1].out


def test_a_tree_is_found_and_killed_and_the_server_stays(server: ForkServer, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import subprocess, time\nsubprocess.Popen(['sleep', '600'], start_new_session=True)\ntime.sleep(600)"
    )
    worker = fork(server, [str(script)], {**os.environ}, tmp_path)
    assert worker is not None
    until(lambda: len(processes.descendants(worker.pid)) == 1)
    assert {worker.pid, *server.pids()} < {*processes.descendants(os.getpid())}
    assert worker.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        worker.wait(0.01)
    os.kill(worker.pid, signal.SIGKILL)
    assert (worker.wait(), worker.poll()) == (-9, -9)
    (server_pid,) = server.pids()
    (orphan,) = processes.descendants(server_pid)  # the orphan is adopted by the server
    os.kill(orphan, signal.SIGKILL)
    until(lambda: processes.descendants(server_pid) == [])


@pytest.mark.parametrize(
    ("files", "command", "env", "words"),
    [
        pytest.param(["train.py", "json.py"], ["train.py"], {}, "json beside the program", id="a name that is taken"),
        pytest.param(["train.py", "heapq/__init__.py"], ["-m", "train"], {}, "heapq beside", id="a package's name"),
        pytest.param(["train.pyc"], ["train.pyc"], {}, "train.pyc is not a source file", id="no source"),
        pytest.param(["train/__main__.py"], ["train"], {}, "train is not a source file", id="a folder"),
        pytest.param(["train.py"], ["train.py"], {"PYTHONPATH": "/x"}, "PYTHONPATH changed", id="what came too late"),
        pytest.param(["train.py"], ["-c", "pass"], {}, "is not torchrun's command line", id="another kind of command"),
    ],
)
def test_what_could_not_be_the_same_starts_cold(
    same: Same,
    capsys: pytest.CaptureFixture[str],
    files: list[str],
    command: list[str],
    env: dict[str, str],
    words: str,
) -> None:
    for name in files:
        same.write(name, "")
    for _ in range(2):
        assert fork(same.server, command, {**os.environ, **env}, same.folder) is None
    assert capsys.readouterr().err.count(words) == 1


def test_modules_that_cannot_be_forked_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "busy.py").write_text(
        "import threading, time\nthreading.Thread(target=time.sleep, args=(600,), daemon=True).start()"
    )
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}")
    (tmp_path / "train.py").write_text("")
    server = ForkServer.start(["busy"])
    assert fork(server, ["train.py"], {**os.environ}, tmp_path) is None
    server.close()


def test_modules_of_the_programs_own_folder_can_be_loaded_ahead(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "own.py").write_text("import os\npid = os.getpid()")
    (tmp_path / "broken.py").write_text("1 / 0")
    (tmp_path / "train.py").write_text(
        "import os, sys, own\nprint(own.pid != os.getpid(), sys.path.count(sys.path[0]))"
    )
    server = ForkServer.start(["own", "broken", "absent"], str(tmp_path))
    assert warm(server, [str(tmp_path / "train.py")], {**os.environ}, tmp_path) == Outcome(0, "True 1\n", "")
    server.close()
    said = capfd.readouterr().err
    assert "broken cannot be preloaded: ZeroDivisionError" in said
    assert "absent cannot be preloaded: ModuleNotFoundError" in said


def test_a_dead_server_is_followed_by_another(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "train.py").write_text("import time; time.sleep(600)")
    command = [str(tmp_path / "train.py")]
    server = ForkServer.start([])
    worker = fork(server, command, {**os.environ}, tmp_path)
    assert worker is not None
    (old,) = server.pids()
    os.kill(old, signal.SIGKILL)
    assert worker.wait(60) == -9  # nobody would tell its end
    assert fork(server, command, {**os.environ}, tmp_path) is None
    assert "workers start cold: the fork server ended with -9" in capsys.readouterr().err
    server.revive()
    again = fork(server, command, {**os.environ}, tmp_path)
    assert again is not None
    assert server.pids() != {old}
    server.revive()  # it lives: nothing is done
    os.kill(again.pid, signal.SIGKILL)
    assert again.wait(60) == -9
    server.close()


MARKS = """
import os
from pytorchjob_agent.workers import ready

def make_context(device):
    path = f"{os.environ['MARKS']}/{device}"
    with open(f"{path}.part", "w") as file:
        file.write(str(os.getpid()))
    os.replace(f"{path}.part", path)

ready.make_context = make_context
"""


@pytest.fixture
def eager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ForkServer]:
    """A server with two processes, each of which has made the context of its device: a file stands for it."""
    (tmp_path / "marks.py").write_text(MARKS)
    (tmp_path / "train.py").write_text("import os; print(os.getpid())")
    monkeypatch.setenv("MARKS", str(tmp_path))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    server = ForkServer.start(["marks"], str(tmp_path))
    server.makes_ready = True
    server.prepare(2, 0.0)
    assert len(server.pids()) == 1, "workers wait for no server that still imports"
    assert server.wait(60)
    server.prepare(2, 0.0)
    until(lambda: all((tmp_path / str(device)).exists() for device in range(2)))
    yield server
    server.close()


def test_a_worker_runs_in_the_process_that_has_made_the_context_of_its_device(
    eager: ForkServer, tmp_path: Path
) -> None:
    made = [int((tmp_path / str(device)).read_text()) for device in range(2)]
    assert {*made} < eager.pids(), "the end of a round leaves them alone"
    for rank, pid in enumerate(made):
        with open(tmp_path / "out", "w") as out:
            worker = eager.popen(
                [sys.executable, "-u", str(tmp_path / "train.py")], {**os.environ, "LOCAL_RANK": str(rank)}, out, None
            )
        assert worker is not None
        assert (worker.wait(60), int((tmp_path / "out").read_text())) == (0, pid)
    assert len(eager.pids()) == 1


@pytest.mark.parametrize("what", ["it was killed", "a variable of CUDA has changed", "another local rank"])
def test_else_it_is_forked(eager: ForkServer, tmp_path: Path, what: str) -> None:
    pid = int((tmp_path / "0").read_text())
    env = {**os.environ, "LOCAL_RANK": "0"}
    if what == "it was killed":
        os.kill(pid, signal.SIGKILL)
        until(lambda: not processes.is_alive(pid))
    env |= {"CUDA_VISIBLE_DEVICES": "1"} if what == "a variable of CUDA has changed" else {}
    env |= {"LOCAL_RANK": "5"} if what == "another local rank" else {}
    worker = eager.popen([sys.executable, "-u", str(tmp_path / "train.py")], env, None, None)
    assert worker is not None
    assert worker.pid != pid
    assert worker.wait(60) == 0
    until(lambda: processes.is_alive(pid) == (what == "another local rank"))


def test_a_process_that_answers_too_late_never_runs_the_program(
    eager: ForkServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pytorchjob_agent.workers.fork_client._READY_PATIENCE", 0.2)
    pid = int((tmp_path / "0").read_text())
    os.kill(pid, signal.SIGSTOP)
    (tmp_path / "train.py").write_text(f"open('{tmp_path}/ran', 'a').write('once ')")
    command, env = [sys.executable, "-u", str(tmp_path / "train.py")], {**os.environ, "LOCAL_RANK": "0"}
    worker = eager.popen(command, env, None, None)
    assert worker is not None
    assert (worker.wait(60), worker.pid != pid) == (0, True)
    until(lambda: not processes.is_alive(pid))
    assert (tmp_path / "ran").read_text() == "once "


def test_a_process_that_has_ended_is_kept_no_longer_and_another_waits(eager: ForkServer, tmp_path: Path) -> None:
    pid = int((tmp_path / "1").read_text())
    os.kill(pid, signal.SIGKILL)
    until(lambda: pid not in eager.pids())
    eager.prepare(2, 0.0)
    assert len(eager.pids()) == 3


def test_processes_that_wait_end_with_their_server_and_with_the_launcher(eager: ForkServer, tmp_path: Path) -> None:
    (server,) = eager.pids() - {int((tmp_path / str(device)).read_text()) for device in range(2)}
    waiting = eager.pids() - {server}
    os.kill(server, signal.SIGKILL)
    until(lambda: not processes.is_alive(server))
    assert eager.popen([sys.executable, "-u", str(tmp_path / "train.py")], {**os.environ}, None, None) is None
    eager.revive()
    until(lambda: not any(processes.is_alive(pid) for pid in waiting))
    assert eager.wait(60)
    eager.prepare(1, 100.0)
    (later,) = eager.pids() - {eager._process.pid}
    eager.close()
    until(lambda: not processes.is_alive(later))


def test_the_server_goes_with_the_launcher(tmp_path: Path) -> None:
    load = "from pytorchjob_agent.workers.fork_client import ForkServer"
    code = f"import os\n{load}\nprint(*ForkServer.start([]).pids())\nos._exit(0)"
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3] / "operator")}
    pid = int(subprocess.run([sys.executable, "-uc", code], env=env, capture_output=True, text=True, check=True).stdout)
    until(lambda: not Path(f"/proc/{pid}").exists())
