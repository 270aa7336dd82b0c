"""Nothing that a job, a server or a neighbour writes can steer the terminal of the person who looks at it."""

import io
import json
import re
from typing import Any

import pytest
import yaml

from pytorchjob.client.values import Job, JobFailedError
from pytorchjob.cluster.errors import ApiServerUnreachable
from pytorchjob.local.screen import ProgressLine, Screen
from pytorchjob.logs.printing import Entry, Printer
from pytorchjob.screen import colour, plain
from pytorchjob.screen.colour import StyledLine
from pytorchjob_operator.terminal import visible, visible_bytes, visible_cell, visible_line, visible_yaml
from tests.people.calling import call
from tests.people.fake_cluster import FakeCluster, a_job, a_pod, an_event

STEERS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
ATTACKS = {
    "clears the screen": "\x1b[2J\x1b[H",
    "sets the clipboard": "\x1b]52;c;cm0gLXJmIC8=\x07",
    "sets the title": "\x1b]0;root\x1b\\",
    "C1": "\x9b31m\x9d52;c;eA==\x9c",
    "turns the letters round": "\u202egpj.exe\u2066x\u2069",
    "overwrites the line": "Failed\rSucceeded",
    "goes back": "no\b\byes",
    "half a character": "\ud800",
    "begins lines": "a\x0bb\x0cc\x85d\u2028e",
}
HOSTILE = "".join(ATTACKS.values())


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("text", ATTACKS.values(), ids=ATTACKS)
def test_all_of_a_text_stays_and_none_of_it_acts(text: str) -> None:
    for shown in (visible(text), visible_line(text), visible_cell(text)):
        assert not STEERS.search(shown)
        shown.encode()
    assert visible(visible(text)) == visible(text)
    assert json.loads(visible(json.dumps({"x": text}, ensure_ascii=False))) == {"x": text}


@pytest.mark.parametrize("text", ["", "loss 0.5\tstep 3", "Größe 3 µs, 你好, ✓", "a\nb"])
def test_what_people_write_stays(text: str) -> None:
    assert (visible(text), visible_bytes(text.encode())) == (text, text.encode())


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        (b"\x1b[31mred\r", b"\\x1b[31mred"),
        (b"\x9b31m", b"\\x9b31m"),
        ("\x9b31m \u202e".encode(), b"\\u009b31m \\u202e"),
        (b"1%\r2%", b"1%\\x0d2%"),
    ],
)
def test_a_terminal_gets_the_lines_of_a_log_visible_and_a_pipe_as_they_are(line: bytes, shown: bytes) -> None:
    for is_terminal, wanted in ((True, shown), (False, line)):
        out = io.BytesIO()
        Printer(out, terminal=is_terminal).write([Entry("rank \x1b[0", 0, b"", line)])
        assert out.getvalue() == b"[rank \\x1b[0] " + wanted + b"\n"


@pytest.mark.parametrize("body", [{"a": "x\u202ey", "b\x9b": ["\x85", "ü"]}, {"a": "ü"}])
def test_yaml_means_the_same(body: Any) -> None:
    text = visible_yaml(lambda letters: str(yaml.safe_dump(body, allow_unicode=letters)))
    assert yaml.safe_load(text) == body
    assert not STEERS.search(text)


def hostile_cluster() -> FakeCluster:
    job = a_job(state="Failed")
    job["metadata"]["annotations"] = {"note": HOSTILE}
    for condition in job["status"]["conditions"]:
        condition |= {"message": HOSTILE, "reason": f"Worker{HOSTILE}"}
    pod = a_pod("digits", "master-0", phase="Failed")
    pod["status"] |= {"message": HOSTILE, "reason": HOSTILE}
    pod["spec"]["nodeName"] = HOSTILE
    pod["status"]["containerStatuses"] = [
        {"name": "pytorch", "state": {"terminated": {"exitCode": 1, "reason": HOSTILE, "message": HOSTILE}}}
    ]
    return FakeCluster(job, pod, an_event("digits", f"Created{HOSTILE}", HOSTILE))


@pytest.mark.parametrize(
    "arguments",
    [
        ["status", "digits"],
        ["status", "digits", "-o", "json"],
        ["status", "digits", "-o", "yaml"],
        ["doctor", "digits"],
        ["doctor", "digits", "-o", "json"],
        ["events", "digits"],
        ["events", "digits", "-o", "yaml"],
        ["events", "digits", "-o", "json"],
        ["list"],
        ["list", "-o", "yaml"],
        ["list", "-o", "name"],
        ["progress", "digits"],
        ["top"],
        ["exec", "digits", "--", "ls"],
        ["logs", "digits", "-c", HOSTILE.replace("\ud800", "")],
        [HOSTILE.replace("\ud800", "")],
    ],
    ids=lambda arguments: " ".join(arguments)[:20].encode("unicode-escape").decode(),
)
def test_no_command_passes_it_on(arguments: list[str]) -> None:
    done = call(hostile_cluster(), *arguments)
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    assert "itself failed" not in done.output
    assert not STEERS.search(done.output)


def test_colours_stay_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout", Terminal())
    painted = colour.paint([StyledLine(HOSTILE, "red")])
    ours = re.sub(r"\x1b\[[\d;]*m", "", painted)
    assert not STEERS.search(ours)


def test_a_line_end_in_a_field_begins_no_line_of_the_screen() -> None:
    assert plain.columns(("A", "B"), [("x\r\ny", "z")]).splitlines() == ["A     B", "x y   z"]
    assert colour.plain([StyledLine("Reason: x\nState: Succeeded")]).count("\n") == 0


def test_a_local_run_prints_its_replicas_visibly() -> None:
    out, err = Terminal(), Terminal()
    screen = Screen(out, err, "1")
    screen.log("worker-0", 0, HOSTILE)
    screen.message(f"note: {HOSTILE}")
    screen.progress(ProgressLine("digits", HOSTILE, 1, 1, 0, HOSTILE), 1.0)
    assert not STEERS.search(out.getvalue() + err.getvalue().replace("\r\x1b[K", ""))


def test_errors_of_the_client_are_visible() -> None:
    failed = JobFailedError(Job.from_object(hostile_cluster().job("digits")))
    for error in (failed, ApiServerUnreachable(HOSTILE, HOSTILE)):
        assert not STEERS.search(str(error))
