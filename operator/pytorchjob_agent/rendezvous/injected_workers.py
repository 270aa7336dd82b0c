"""The workers of an unmodified torchrun: why they failed, as torch's agent and the hook in them have noted it."""

import os
import time
from typing import Any

from pytorchjob_agent import torch_compat
from pytorchjob_agent.contract.messages import Assigned, Failed
from pytorchjob_agent.contract.noted_end import ENDS
from pytorchjob_agent.contract.root_cause import CHILD_FAILED
from pytorchjob_agent.contract.termination import TerminationMessage
from pytorchjob_agent.rendezvous import failure_messages
from pytorchjob_agent.system import processes
from pytorchjob_agent.workers import uncaught_error

_UNEXPLAINED = "workers failed here (torchrun does not report why; see the log)"


class InjectedWorkers:
    """Keeps how torch's agent found its workers, for the report of their failure."""

    def __init__(self) -> None:
        """Watch torch's agent, which is made later, and let its workers note their ends."""
        self._agent: Any = None
        self._result: Any = None
        self._killed: tuple[int, ...] = ()
        self._at: float | None = None
        """When they were first seen to have failed, or were told to stop."""
        if ENDS not in os.environ:  # else the workers note their ends already, for a local run
            uncaught_error.use_hook(os.environ)
        torch_compat.watch_results(self._note)

    def begin(self) -> None:
        """Forget the workers of the last round."""
        self._result = self._at = None

    def tell(self) -> None:
        """Note that torch's agent is told to stop the workers."""
        self._at = self._at or time.monotonic()

    def failure(self, assigned: Assigned) -> Failed:
        """Return the failure of the workers, which torch's agent has stopped by now."""
        if self._result is None:
            return Failed(assigned.round, assigned.first_rank, 0, 1, _UNEXPLAINED, errors=(CHILD_FAILED,))
        failures = torch_compat.failures(self._agent, self._result)
        return self._message(
            assigned, failure_messages.explain(failures, self._agent.get_worker_group(), self._killed, self)
        )

    def told(self, assigned: Assigned) -> Failed | None:
        """Return the failure of workers that were told to stop, if they had noted one before."""
        if self._result is not None:
            return self.failure(assigned)
        if self._agent is None or self._at is None:
            return None
        report = failure_messages.noted_before(self._at, self._agent.get_worker_group(), self)
        return None if report is None else self._message(assigned, report)

    def _message(self, assigned: Assigned, report: TerminationMessage) -> Failed:
        now = time.monotonic()
        return failure_messages.message(assigned, report, age=now - (self._at or now))

    def error_file(self, local_rank: int) -> str:
        """Return what the name of a worker's note begins with."""
        workers = self._agent.get_worker_group().workers
        rank = next(worker.global_rank for worker in workers if worker.local_rank == local_rank)
        folder = os.environ.get(ENDS)
        return os.path.join(folder, str(rank)) if folder else str(self._agent._pcontext.error_files[local_rank])

    def tail(self, local_rank: int) -> None:
        """Return that torchrun keeps no output."""

    def _note(self, agent: Any, result: Any) -> None:
        self._agent = agent
        if not result.failures:
            return
        self._result, self._at = result, time.monotonic()
        alive = (worker for worker in agent.get_worker_group().workers if processes.is_alive(worker.id))
        self._killed = tuple(worker.local_rank for worker in alive)
