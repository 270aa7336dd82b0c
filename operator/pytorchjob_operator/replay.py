"""The command `pytorchjob-operator rounds --replay FILE`: prints the coordinator's recorded decisions."""

from collections.abc import Iterator
from pathlib import Path

import click

from pytorchjob_agent.contract.messages import Heartbeat, HeartbeatReply
from pytorchjob_operator.rounds.phases import name_of
from pytorchjob_operator.rounds.recording import RecordingError, Replayed, replay
from pytorchjob_operator.rounds.state import Close, MessageReceived, Send, Tick
from pytorchjob_operator.terminal import say


@click.command("rounds")
@click.option("--replay", "path", required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--job", help="Print only the decisions of this job's uid.")
@click.option("--all", "everything", is_flag=True, help="Print heartbeats and ticks that change no phase, too.")
def rounds_command(path: Path, job: str | None, everything: bool) -> None:
    """Replay the decisions about rounds that an operator recorded.

    An operator records them to the file of PYTORCHJOB_OPERATOR_COORDINATOR_RECORDING. Each line shows the time, the
    phase after the decision and its reason; below it are the commands to agents and the events.
    """
    try:
        with path.open(errors="replace") as file:
            for item in replay(file):
                if job in (None, item.job) and (everything or _is_interesting(item)):
                    say("\n".join(_lines(item)))
    except RecordingError as error:
        raise click.ClickException(f"{path}: {error}") from error


def _is_interesting(item: Replayed) -> bool:
    quiet = isinstance(item.input, Tick) or (
        isinstance(item.input, MessageReceived) and isinstance(item.input.message, Heartbeat)
    )
    decision = item.decision
    acts = any(
        not (isinstance(command, Send) and isinstance(command.message, HeartbeatReply)) for command in decision.commands
    )
    return not quiet or acts or bool(decision.events) or name_of(item.before.phase) != name_of(decision.state.phase)


def _lines(item: Replayed) -> Iterator[str]:
    decision = item.decision
    before, after = name_of(item.before.phase), name_of(decision.state.phase)
    phase = str(after) if before == after else f"{before} -> {after}"
    yield f"{item.at:.3f} {item.job} {phase}: {decision.reason}"
    for command in decision.commands:
        match command:
            case Send(connection, message):
                yield f"    to connection {connection}: {message.to_line().decode().strip()}"
            case Close(connection):
                yield f"    close connection {connection}"
    for event in decision.events:
        yield f"    event {event.reason}: {event.message}"
