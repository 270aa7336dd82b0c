"""Where torch writes what workers say and why they failed, and its events."""

import json
import logging
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
from torch.distributed.elastic import events
from torch.distributed.elastic.multiprocessing.api import DefaultLogsSpecs
from torch.distributed.elastic.multiprocessing.errors import ProcessFailure

pytestmark = pytest.mark.torch


def test_destinations_are_maps_by_local_rank_that_may_be_changed(tmp_path: Path) -> None:
    specs = DefaultLogsSpecs(log_dir=str(tmp_path))
    env = {"TORCHELASTIC_RUN_ID": "r", "TORCHELASTIC_RESTART_COUNT": "0"}
    destinations = specs.reify({0: {**env, "RANK": "4"}, 1: {**env, "RANK": "5"}})
    assert str(specs.root_log_dir) == str(tmp_path)
    for one in (destinations.stdouts, destinations.stderrs, destinations.error_files):
        assert set(one) == {0, 1}
    assert destinations.stdouts[0] == "" == destinations.stderrs[0]  # not sent anywhere
    assert env["TORCHELASTIC_RUN_ID"] == "r"


def test_a_recorded_error_comes_back_with_its_traceback(tmp_path: Path) -> None:
    file = tmp_path / "error.json"
    code = """
from torch.distributed.elastic.multiprocessing.errors import record
@record
def main():
    raise ValueError("no such luck")
main()
"""
    done = subprocess.run([sys.executable, "-c", code], env={"TORCHELASTIC_ERROR_FILE": str(file)}, capture_output=True)
    failure = ProcessFailure(1, 2, done.returncode, str(file))
    words = json.loads(file.read_text())["message"]
    assert failure.error_file_data["message"] == words
    assert words["message"] == "ValueError: no such luck"
    assert "in main\nValueError" in words["extraInfo"]["py_callstack"]
    assert failure.timestamp == int(words["extraInfo"]["timestamp"])


def test_an_event_goes_to_the_handler_of_its_name() -> None:
    seen: list[logging.LogRecord] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            seen.append(record)

    from torch.distributed.elastic.events import handlers

    handlers._log_handlers["kept"] = Keep()
    events.record(events.Event("SUCCEEDED", events.EventSource.AGENT, metadata={"state": "SUCCEEDED"}), "kept")
    events.record(events.Event("SUCCEEDED", events.EventSource.AGENT), "null")
    assert [json.loads(record.getMessage())["metadata"] for record in seen] == [{"state": "SUCCEEDED"}]
