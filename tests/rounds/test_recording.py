"""Recorded decisions: a replay gives the same ones, and a damaged recording is refused with its line."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from pytorchjob_agent.contract.messages import Heartbeat, Hello, Join, RoundId
from pytorchjob_operator.coordinator.recorder import Recording
from pytorchjob_operator.replay import rounds_command
from pytorchjob_operator.rounds import recording
from pytorchjob_operator.rounds.decide import decide
from pytorchjob_operator.rounds.state import (
    AuthenticationFailed,
    ConnectionClosed,
    Input,
    JobState,
    JobSynced,
    MessageReceived,
    Tick,
)
from pytorchjob_operator.rounds.values import ExpectedPod, Policy

POLICY = Policy(1, 1)
INPUTS: list[Input] = [
    JobSynced(POLICY, {0: ExpectedPod("pod-0", "uid-0")}, restarts=4),
    AuthenticationFailed("a wrong token"),
    MessageReceived(5, None, Hello("job", "pod-0", "secret", 0, "10.0.0.1", 2, "first", pod_uid="uid-0")),
    MessageReceived(5, 0, Join(4000)),
    MessageReceived(5, 0, Heartbeat(step=3)),
    Tick(),
    ConnectionClosed(5, 0),
    JobSynced(POLICY, {}, terminating={0: "uid-0"}),
    JobSynced(POLICY, {}, trained=True),
]


def record(path: Path) -> JobState:
    """Decide about all inputs, and record them."""
    recorder, state = Recording(path), JobState(POLICY, 3)
    for at, input_ in enumerate(INPUTS, 100):
        recorder("a-job", state, input_, float(at))
        state = decide(state, input_, float(at)).state
    recorder.close()
    return state


def test_a_replay_ends_in_the_same_state(tmp_path: Path) -> None:
    end = record(tmp_path / "file")
    replayed = [*recording.replay((tmp_path / "file").read_text().splitlines())]
    assert [item.at for item in replayed] == [100.0 + at for at in range(len(INPUTS))]
    assert replayed[-1].decision.state == end


def test_a_replay_of_a_resumed_job_begins_after_its_last_round(tmp_path: Path) -> None:
    recorder, state = Recording(tmp_path / "file"), JobState(POLICY, 3, finished_round=RoundId(3, 7, 1))
    for at, input_ in enumerate(INPUTS, 100):
        recorder("a-job", state, input_, float(at))
        state = decide(state, input_, float(at)).state
    recorder.close()
    *_, last = recording.replay((tmp_path / "file").read_text().splitlines())
    assert last.decision.state == state
    assert state.last_round == RoundId(3, 8)


def test_the_lines_of_a_recording(tmp_path: Path) -> None:
    record(tmp_path / "file")
    lines = (tmp_path / "file").read_text().splitlines()
    assert lines[0] == '{"format": "pytorchjob-rounds", "version": 1}'
    assert json.loads(lines[2]) == {
        "job": "a-job",
        "at": 101.0,
        "input": "authentication failed",
        "message": "a wrong token",
        "reason": "AgentRefused",
    }
    hello = json.loads(json.loads(lines[3])["line"])
    assert (hello["token"], hello["pod"]) == ("", "pod-0")
    assert not any(json.loads(line).get("line", "").endswith("\n") for line in lines)


@pytest.mark.parametrize(
    ("second", "words"),
    [
        pytest.param({"input": "tick"}, "ValueError: the first input of a job must be a sync", id="no sync"),
        pytest.param({"input": "x" * 50}, f"ValueError: unknown input '{'x' * 40}'", id="an unknown input"),
    ],
)
def test_a_first_input_that_is_refused(second: dict[str, str], words: str) -> None:
    lines = [recording.header(), json.dumps({"job": "a", "at": 1.0, "term": 3, **second})]
    with pytest.raises(recording.RecordingError) as error:
        list(recording.replay(lines))
    assert str(error.value).startswith(f"line 2: {words}; the file is damaged")


def test_an_old_recording_without_restarts_has_none() -> None:
    sync = {"input": "sync", "policy": {"min_members": 1, "max_members": 1}, "pods": {}}
    lines = [recording.header(), json.dumps({"job": "a", "at": 1.0, "term": 3, **sync})]
    assert [found.decision.state.restarts for found in recording.replay(lines)] == [0]


def test_a_recording_has_no_token(tmp_path: Path) -> None:
    record(tmp_path / "file")
    assert "secret" not in (tmp_path / "file").read_text()


def test_the_command_prints_phases_reasons_commands_and_events(tmp_path: Path) -> None:
    record(tmp_path / "file")
    done = CliRunner().invoke(rounds_command, ["--replay", str(tmp_path / "file")])
    assert done.exit_code == 0, done.output
    assert "a-job Waiting -> Running: round 3.1 starts with 1 member and 2 workers" in done.output
    assert '    to connection 5: {"kind":"assigned"' in done.output
    assert "    event RoundStarted: Round 3.1 starts with 1 member and 2 workers" in done.output
    assert "a heartbeat" not in done.output
    everything = CliRunner().invoke(rounds_command, ["--replay", str(tmp_path / "file"), "--all"])
    assert "a-job Running: a heartbeat" in everything.output


HEAD = recording.header()
SYNC = recording.line("a-job", JobState(POLICY, 3), INPUTS[0], 1.0)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param("", "", id="an empty file has no decisions"),
        pytest.param("{}\n", "line 1: this is not a recording of rounds", id="another file"),
        pytest.param('{"format": "pytorchjob-rounds", "version": 9}\n', "line 1: version 9", id="another version"),
        pytest.param(HEAD + SYNC + SYNC[:40] + "\n", "line 3: JSONDecodeError", id="a line that is cut off"),
        pytest.param(
            HEAD + '{"job": "x", "at": 1, "input": "song"}\n', "line 2: ValueError: unknown input", id="unknown"
        ),
        pytest.param(HEAD + '{"job": "x", "at": 1, "input": "tick"}\n', "line 2: KeyError: 'x'", id="an unknown job"),
        pytest.param(
            HEAD
            + SYNC
            + json.dumps({"job": "a-job", "at": 2, "input": "message", "connection": 1, "index": 0, "line": "{"}),
            "line 3: the message is damaged",
            id="a damaged message",
        ),
    ],
)
def test_a_damaged_recording_is_refused_with_its_line(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "file").write_text(text)
    done = CliRunner().invoke(rounds_command, ["--replay", str(tmp_path / "file")])
    assert done.exit_code == (1 if words else 0)
    assert words in done.output
