"""The coordinator's decisions: `decide(state, input, now) -> Decision`. Pure: no socket, clock or random number.

The coordinator's shell (`coordinator/jobs.py`) feeds it with messages and time, and sends the commands. A coordinator
may lose any state: the agents' hellos bring back what is needed.
"""

from dataclasses import replace
from typing import assert_never

from pytorchjob_agent.contract.messages import (
    Done,
    Draining,
    Failed,
    FromAgent,
    Heartbeat,
    Hello,
    Join,
    Resumed,
    Unreachable,
)
from pytorchjob_agent.contract.reasons import ShrinkState
from pytorchjob_operator.rounds import (
    arrivals,
    checkpoint_problems,
    losses,
    rendezvous,
    running,
    stragglers,
    threats,
)
from pytorchjob_operator.rounds.phases import Ended, Rendezvous, Running
from pytorchjob_operator.rounds.state import (
    AuthenticationFailed,
    ConnectionClosed,
    Decision,
    Input,
    JobState,
    JobSynced,
    MessageReceived,
    Tick,
)
from pytorchjob_operator.rounds.transition import Transition
from pytorchjob_operator.rounds.values import Member


def decide(state: JobState, input_: Input, now: float) -> Decision:
    """Return the next state, the commands, the events and the reason. Raises IllegalTransitionError for a defect."""
    transition = Transition(losses.shift_after_sleep(state, now), now)
    match input_:
        case MessageReceived():
            _receive(transition, input_)
        case ConnectionClosed(connection, index):
            losses.connection_closed(transition, connection, index)
        case JobSynced():
            losses.sync_job(transition, input_)
        case AuthenticationFailed(message, reason):
            arrivals.authentication_failed(transition, reason, message)
        case Tick():
            transition.reason = "time passed"
        case _:
            assert_never(input_)
    if not isinstance(transition.state.phase, Ended):
        _follow_up(transition, input_)
    triggers, commands, events = tuple(transition.triggers), tuple(transition.commands), tuple(transition.events)
    return Decision(transition.state, commands, events, transition.reason, triggers)


def _follow_up(transition: Transition, input_: Input) -> None:
    """Do what has become due. A heartbeat changes little and comes often: it matters if workers wait for the answer."""
    if isinstance(input_, MessageReceived) and isinstance(input_.message, Heartbeat):
        phase = transition.state.phase
        shrinks = input_.message.shrinks
        if shrinks == ShrinkState.BROKEN:
            losses.find_lost_members(transition)
            phase = transition.state.phase
        if isinstance(phase, Running) and (phase.planned is not None or shrinks == ShrinkState.HELD):
            running.advance(transition, phase)
        return
    if not isinstance(input_, MessageReceived):
        losses.find_lost_members(transition)
        arrivals.expire_refusals(transition)
    running.check_success(transition)
    if isinstance(transition.state.phase, Running):
        running.advance(transition, transition.state.phase)
    threats.advance(transition)
    if isinstance(transition.state.phase, Rendezvous):
        rendezvous.advance(transition, transition.state.phase)


def _receive(transition: Transition, input_: MessageReceived) -> None:
    """Handle a message that comes on the member's present connection."""
    if isinstance(input_.message, Hello):
        arrivals.hello(transition, input_.connection, input_.message)
        return
    member = None if input_.index is None else transition.state.members.get(input_.index)
    if member is None or member.connection != input_.connection:
        transition.reason = "a message on an old connection is ignored"
        return
    if isinstance(input_.message, Heartbeat):
        running.heartbeat(transition, member, input_.message)
        checkpoint_problems.record(transition, member, input_.message)
        stragglers.record(transition, member, input_.message)
        return
    member = transition.put(replace(member, heard_at=transition.now, lost_at=None))
    if isinstance(transition.state.phase, Ended):
        transition.reason = "the job has ended"
        return
    _dispatch(transition, member, input_.message)


def _dispatch(transition: Transition, member: Member, message: FromAgent) -> None:
    match message:
        case Join():
            running.join(transition, member, message)
        case Failed():
            running.failed(transition, member, message)
        case Done():
            running.done(transition, member, message)
        case Resumed():
            running.resumed(transition, member, message)
        case Draining():
            running.draining(transition, member, message)
        case Unreachable():
            running.unreachable(transition, member, message)
        case Hello() | Heartbeat():
            raise AssertionError(f"{message.kind} is handled before")
        case _:
            assert_never(message)
