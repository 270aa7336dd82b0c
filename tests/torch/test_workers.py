"""What we override and call of torch's agent, which mostly is private there; each by a small real use."""

import json
import os
import signal
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
from torch.distributed.elastic.agent.server import local_elastic_agent
from torch.distributed.elastic.agent.server.api import RunResult, Worker, WorkerState
from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent
from torch.distributed.elastic.multiprocessing import SubprocessContext
from torch.distributed.elastic.multiprocessing.api import SignalException
from torch.distributed.launcher.api import LaunchConfig

from pytorchjob_agent import torch_compat
from tests.waiting import until

from . import agents
from .agents import Meeting, begin, group, until_over

pytestmark = pytest.mark.torch
Make = Callable[..., Any]


def alive(pid: int) -> bool:
    """Whether the process runs; the dead may not be reaped yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


# --- the loop


class Looped(LocalElasticAgent):
    """Has a loop of its own."""

    def _invoke_run(self, role: str = "default") -> RunResult:
        self._initialize_workers(self._worker_group)
        return RunResult(state=WorkerState.SUCCEEDED, return_values={0: role})


def test_an_own_loop_is_what_run_runs(agent: Make) -> None:
    assert agent(agents.SLEEP, cls=Looped).run().return_values == {0: "default"}


def test_run_ends_the_workers_when_the_loop_has_ended(agent: Make) -> None:
    one = agent(agents.SLEEP, cls=Looped)
    one.run()
    assert not any(alive(pid) for pid in one._pcontext.pids().values())


def test_torchs_own_loop_runs_to_the_end(agent: Make) -> None:
    one = agent("pass", nproc=2)
    result = one.run()
    assert (result.state, result.is_failed(), result.failures) == (WorkerState.SUCCEEDED, False, {})


def test_a_signal_while_workers_run_comes_out_of_run(agent: Make) -> None:
    one = agent(agents.SLEEP)

    def ask() -> None:
        until(lambda: one.get_worker_group().state == WorkerState.HEALTHY)
        os.kill(os.getpid(), signal.SIGTERM)

    thread = threading.Thread(target=ask)
    thread.start()
    with pytest.raises(SignalException) as raised:
        one.run()
    thread.join()
    assert raised.value.sigval == signal.SIGTERM


def test_the_signals_that_torch_handles_are_ours_to_name_where_it_asks(agent: Make, monkeypatch: Any) -> None:
    monkeypatch.setenv("TORCHELASTIC_SIGNALS_TO_HANDLE", "SIGUSR1")
    for signum in (signal.SIGTERM, signal.SIGUSR1):
        signal.signal(signum, signal.SIG_DFL)
    begin(agent("pass"))
    asks = "signals_to_handle" in LaunchConfig.__dataclass_fields__
    taken = signal.SIGUSR1 if asks else signal.SIGTERM  # torch 2.4 takes its four
    assert signal.getsignal(taken) is not signal.SIG_DFL
    assert (signal.getsignal(signal.SIGTERM) is signal.SIG_DFL) is asks


# --- a round


def test_a_rendezvous_gives_the_group_its_place_and_its_store(agent: Make) -> None:
    one = agent(agents.SLEEP, nproc=2, meeting=Meeting())
    one._rendezvous(group(one))
    place = group(one)
    assert (place.group_rank, place.group_world_size, place.master_addr, place.master_port) == (0, 1, "10.0.0.1", 1234)
    assert place.store is one._store
    assert [worker.global_rank for worker in place.workers] == [0, 1]


class Ranked(LocalElasticAgent):
    """Knows the ranks without asking a store."""

    def _assign_worker_ranks(self, store: Any, group_rank: int, group_world_size: int, spec: Any) -> list[Worker]:
        assert store is not None
        first, world = 10 * group_rank, 10 * group_world_size
        return [
            Worker(
                local_rank=local_rank,
                global_rank=first + local_rank,
                role_rank=first + local_rank,
                world_size=world,
                role_world_size=world,
            )
            for local_rank in range(spec.local_world_size)
        ]


def test_our_ranks_and_counts_are_what_the_workers_are_told(agent: Make, tmp_path: Path) -> None:
    one = agent(agents.TELL, nproc=2, meeting=Meeting(2, 3), cls=Ranked)
    one._remaining_restarts = 3
    until_over(begin(one))
    told = json.loads((tmp_path / "1.out").read_text())
    wanted = {
        "RANK": "21",
        "LOCAL_RANK": "1",
        "GROUP_RANK": "2",
        "ROLE_RANK": "21",
        "ROLE_NAME": "default",
        "WORLD_SIZE": "30",
        "LOCAL_WORLD_SIZE": "2",
        "GROUP_WORLD_SIZE": "3",
        "ROLE_WORLD_SIZE": "30",
        "MASTER_ADDR": "10.0.0.1",
        "MASTER_PORT": "1234",
        "TORCHELASTIC_RESTART_COUNT": "2",
        "TORCHELASTIC_MAX_RESTARTS": "5",
        "TORCHELASTIC_RUN_ID": "the-run",
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
    }
    assert {name: told.get(name) for name in wanted} == wanted
    assert Path(told["TORCHELASTIC_ERROR_FILE"]).parent.is_dir()


def test_every_worker_has_its_pid_and_a_session_of_its_own(agent: Make) -> None:
    one = begin(agent(agents.SLEEP, nproc=2))
    pids = one._pcontext.pids()
    assert {worker.local_rank: worker.id for worker in group(one).workers} == pids
    assert [os.getsid(pid) for pid in pids.values()] == list(pids.values())


def test_workers_are_started_by_a_function_that_can_be_put_in_its_place(agent: Make, monkeypatch: Any) -> None:
    original: Any = local_elastic_agent.start_processes  # type: ignore[attr-defined]
    seen: list[dict[str, Any]] = []

    def start(**options: Any) -> Any:
        seen.append(options)
        return original(**options)

    monkeypatch.setattr(local_elastic_agent, "start_processes", start)
    assert isinstance(begin(agent("pass"))._pcontext, SubprocessContext)
    assert {"name", "entrypoint", "args", "envs", "logs_specs", "log_line_prefixes"} <= seen[0].keys()


# --- watching, stopping, starting again


def test_workers_that_run_are_healthy_and_then_succeed(agent: Make) -> None:
    one = begin(agent(agents.SLEEP))
    assert one._monitor_workers(group(one)).state == WorkerState.HEALTHY
    assert until_over(begin(agent("pass"))).state == WorkerState.SUCCEEDED


def test_a_failure_is_told_by_global_rank(agent: Make) -> None:
    one = begin(agent(agents.ONE_FAILS, nproc=2, meeting=Meeting(1, 2), cls=Ranked))
    pid = one._pcontext.pids()[1]
    result = until_over(one)
    failure = result.failures[11]
    assert (result.state, result.is_failed()) == (WorkerState.FAILED, True)
    assert (failure.local_rank, failure.pid, failure.exitcode) == (1, pid, 7)
    assert failure.timestamp > 0
    assert not os.path.isfile(failure.error_file)


def test_the_others_are_closed_by_the_close_of_the_instance(agent: Make) -> None:
    one = begin(agent(agents.ONE_FAILS.replace("time.sleep", agents.DEAF.partition(";")[0] + "; time.sleep"), nproc=2))
    original, calls = one._pcontext.close, []

    def close(*args: Any, **options: Any) -> None:
        calls.append((args, options))
        original(signal.SIGKILL)

    one._pcontext.close = close
    assert until_over(one).is_failed()
    assert calls == [((), {})]
    assert not any(alive(pid) for pid in one._pcontext.pids().values())


def test_deaf_workers_are_killed_at_once_when_asked(agent: Make, tmp_path: Path) -> None:
    one = begin(agent(agents.DEAF))
    until(lambda: "deaf" in (tmp_path / "0.out").read_text())
    one._shutdown(signal.SIGKILL)
    assert not any(alive(pid) for pid in one._pcontext.pids().values())


def test_workers_stop_when_the_group_is_stopped_and_the_rendezvous_goes_on(agent: Make) -> None:
    meeting = Meeting()
    one = begin(agent(agents.SLEEP, nproc=2, meeting=meeting))
    torch_compat.keep_rendezvous(one)
    one._stop_workers(group(one))
    assert not any(alive(pid) for pid in one._pcontext.pids().values())
    one._shutdown()
    assert meeting.shutdowns == 0


def test_workers_that_were_stopped_after_a_failure_are_named(agent: Make) -> None:
    one = begin(agent(agents.ONE_FAILS, nproc=3))
    failures = torch_compat.failures(one, until_over(one))
    assert {rank: failure.exitcode for rank, failure in failures.items()} == {0: -15, 1: 7, 2: -15}


def test_a_restart_stops_meets_and_starts(agent: Make) -> None:
    meeting = Meeting()
    one = begin(agent(agents.SLEEP, meeting=meeting))
    before = one._pcontext.pids()[0]
    one._remaining_restarts -= 1
    one._restart_workers(group(one))
    assert (meeting.rounds, meeting.shutdowns) == (2, 0)
    assert not alive(before)
    assert alive(one._pcontext.pids()[0])


def test_the_exit_barrier_uses_the_store_of_the_round(agent: Make) -> None:
    one = begin(agent("pass", meeting=Meeting(1, 2), cls=Ranked))
    one._exit_barrier_timeout = 0.1  # the other node does not come: that is only logged
    before = one._store.num_keys()
    one._exit_barrier()
    assert one._store.num_keys() > before


def test_the_popen_of_a_worker_is_at_hand(agent: Make) -> None:
    one = begin(agent(agents.SLEEP))
    worker = one._pcontext.subprocess_handlers[0].proc
    assert isinstance(worker, subprocess.Popen)
    assert worker.pid == one._pcontext.pids()[0]


def test_the_agents_events_can_be_made(agent: Make) -> None:
    one = begin(agent("pass"))
    assert one.get_event_succeeded().metadata["state"] == "SUCCEEDED"
    try:
        raise ValueError("why")
    except ValueError:
        assert "why" in one.get_event_failed().metadata["raw_error"]
