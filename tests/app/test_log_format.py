"""The log as machines read it."""

import json
import logging
import sys
from collections.abc import Iterator

import pytest

from pytorchjob_operator.app.log_format import JsonFormatter, configure


def record(message: str, *args: object, failed: bool = False) -> logging.LogRecord:
    info = sys.exc_info() if failed else None
    return logging.LogRecord("a.b", logging.WARNING, "x.py", 1, message, args, info)


def test_a_record_is_one_json_object() -> None:
    line = JsonFormatter().format(record("job %s:\nfailed", "ä"))
    fields = json.loads(line)
    assert "\n" not in line
    assert fields.pop("ts").endswith("+00:00")
    assert fields == {"level": "warning", "logger": "a.b", "msg": "job ä:\nfailed"}


def test_a_traceback_has_its_own_field() -> None:
    try:
        raise ValueError("no")
    except ValueError:
        fields = json.loads(JsonFormatter().format(record("bad", failed=True)))
    assert "ValueError: no" in fields["traceback"]


@pytest.fixture
def restored() -> Iterator[None]:
    """The process' log as it was."""
    root, kopf = logging.getLogger(), logging.getLogger("kopf")
    before, levels = list(root.handlers), (root.level, kopf.level)
    root.handlers.clear()
    yield
    root.handlers[:] = before
    root.setLevel(levels[0])
    kopf.setLevel(levels[1])


@pytest.mark.usefixtures("restored")
@pytest.mark.parametrize(
    ("form", "start"), [pytest.param("json", "{", id="as JSON"), pytest.param("text", "2", id="as text, time first")]
)
def test_the_log_goes_to_standard_error(capsys: pytest.CaptureFixture[str], form: str, start: str) -> None:
    configure("INFO", form)
    logging.getLogger("a").info("hello")
    logging.getLogger("a").debug("not logged")
    logging.getLogger("kopf").error("not logged either")
    out, err = capsys.readouterr()
    assert (out, err.count("\n"), err[0]) == ("", 1, start)
