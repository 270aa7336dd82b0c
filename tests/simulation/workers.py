"""The workers of one agent in one round, and how those of one round pull each other down."""

from typing import TYPE_CHECKING

from pytorchjob_agent.contract.messages import Assigned, Save
from pytorchjob_agent.rendezvous.decide import Workers

if TYPE_CHECKING:
    from .agent import Agent

REAL, ECHO = "ValueError: bad batch", "DistNetworkError: Connection closed by peer"
HOLD_SECONDS = 10.0
"""How long workers that have lost a rank wait for the word of who goes on."""
ECHO_TYPE = "torch.distributed.DistNetworkError"


class RoundWorkers:
    """The workers of one agent in one round."""

    def __init__(self, agent: "Agent", assigned: Assigned) -> None:
        self._agent, self._assigned = agent, assigned
        self.state = Workers.RUN
        self.step = agent.world.saved_step
        self.error = ""
        self.saved = False
        self.left: frozenset[int] = frozenset()
        """Ranks of members without which these workers go on."""
        self.number = self.entered = 0
        """The last change of their group, and the last one by which members came in."""
        self.outside = assigned.enters > 0
        """Whether they prepare to come into the others' group."""
        self.held = False
        """Whether they wait in a collective, for the word of who goes on."""
        self.saved_for = self._saving_for = 0
        """The requests after which training continues: what was saved for, and what is being saved for."""
        if self.outside:
            self._agent.world.clock.soon(0.0, 4.0, self._come_in)

    def advance(self) -> int:
        """Return the step; time has gone by."""
        if self.state is Workers.RUN and self._agent.world.checks.complete(self._assigned.round, self.left):
            self.step += 1
            self._agent.world.checks.saves(self._agent, self._assigned.round)
            self._agent.world.saved_step = max(self._agent.world.saved_step, self.step)
        return self.step

    def fail(self, text: str) -> None:
        """A worker fails; those of the other members do not live for long then."""
        if self.state is Workers.RUN and self._agent.workers is self:
            self.state, self.error = Workers.FAILED, text
            if text is not ECHO:
                self._agent.world.checks.failed(self._assigned.round)
            self._agent.workers_changed()
            self._agent.world.checks.pull_down(self._agent)

    def _come_in(self) -> None:
        """Come into the group of the others before one of their steps."""
        if self._agent.workers is not self or self.state is not Workers.RUN or self._agent.dead:
            return
        if not self._agent.world.checks.take_in(self._agent, self._assigned):
            self._agent.world.clock.after(0.2, self._come_in)

    def enter(self, number: int, left: frozenset[int]) -> None:
        """Their group has another member, or they themselves have come into it."""
        self.left, self.outside = left, False
        self.number = self.entered = number
        self._agent.report()

    def lose(self) -> None:
        """A rank of another member has gone, and these workers notice: they fail, or they wait for a word."""
        if self.outside:
            return
        if not self._agent.survives or self.state is not Workers.RUN:
            self.fail(ECHO)
        elif not self.held:
            self.held, left = True, self.left

            def give_up() -> None:
                if self.held and left == self.left:
                    self.fail(ECHO)

            self._agent.world.clock.after(HOLD_SECONDS, give_up)

    def shrink(self, number: int, left: frozenset[int]) -> None:
        """They hear who goes on."""
        if number <= self.number:
            return  # they have come in by this change
        assert left >= self.left, f"{self._agent} hears {sorted(left)} after {sorted(self.left)}"
        assert self._assigned.rank not in left, f"{self._agent} hears that it has left its round"
        self.number, self.left, self.held = number, left, False
        self._agent.world.event("workers go on without a member")

    def hang(self) -> None:
        """The workers make no more progress, and the agent finds out."""
        if self.state is Workers.RUN and self._agent.workers is self:
            self.state, self.error = Workers.HANG, "no step for 11 s; it is in train.py:41 load()"
            self._agent.world.checks.failed(self._assigned.round)
            self._agent.workers_changed()

    def finish(self) -> None:
        """The workers end well."""
        if self.state is Workers.RUN and self._agent.workers is self:
            self.state = Workers.DONE
            self._agent.finished = self._assigned.round
            self._agent.workers_changed()

    def save(self, cooperative: bool, obeys: bool) -> None:
        """The workers are asked to save: some do, and some of those end then."""

        def saved() -> None:
            if self._agent.workers is self and self.state is Workers.RUN and not self._agent.dead:
                self.saved = True
                if obeys:
                    self.state = Workers.STOPPED
                self._agent.workers_changed()

        if cooperative:
            self._agent.world.clock.soon(0.0, 4.0, saved)
        else:
            self.saved = True  # its agent answers at once

    def save_for(self, request: Save) -> None:
        """The workers are asked to save and to continue, once for each request."""

        def saved() -> None:
            if self._agent.workers is self and self.state is Workers.RUN and not self._agent.dead:
                self.saved_for = max(self.saved_for, request.number)
                self._agent.world.event("workers save and train on")

        if request.number > self._saving_for:
            self._saving_for = request.number
            assert request.round == self._assigned.round, f"{self._agent} is asked to save in another round"
            self._agent.world.clock.soon(0.0, 4.0, saved)

    def end(self) -> None:
        """They are gone."""
        self._agent.world.checks.stopped(self._agent, self._assigned.round)
