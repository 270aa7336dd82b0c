"""The workers' output: whole lines with their rank."""

import io
import os
from pathlib import Path

import pytest

from pytorchjob_agent.workers.output import Pump, WorkerStream


def pumped(directory: Path, *writes: bytes) -> tuple[bytes, bytes]:
    """Return what is printed, and the kept end, when a worker writes so."""
    out = io.BytesIO()
    pump = Pump(directory)
    path, stream = pump.attach("0.out", "[rank3]: ", out)
    pump.start()
    with open(path, "wb", buffering=0) as worker:
        for data in writes:
            worker.write(data)
    pump.close()
    return out.getvalue(), bytes(stream.tail)


@pytest.mark.parametrize(
    ("writes", "printed"),
    [
        pytest.param([b"a\nb\n"], b"[rank3]: a\n[rank3]: b\n", id="each line has its rank"),
        pytest.param([b"a", b"b\n"], b"[rank3]: ab\n", id="a line in two pieces stays one"),
        pytest.param([b"a\nend"], b"[rank3]: a\n[rank3]: end\n", id="a last line without its end is printed"),
        pytest.param(
            [b"[rank3]: a\n[rank4]: b\n"], b"[rank3]: a\n[rank3]: [rank4]: b\n", id="torch's own rank is enough"
        ),
        pytest.param([], b"", id="silence"),
        pytest.param([b"a\n\n  b\n"], b"[rank3]: a\n[rank3]: \n[rank3]:   b\n", id="empty lines and indents stay"),
        pytest.param([b"a\r\nb\r\n"], b"[rank3]: a\n[rank3]: b\n", id="lines that end as on Windows"),
    ],
)
def test_lines(tmp_path: Path, writes: list[bytes], printed: bytes) -> None:
    assert pumped(tmp_path, *writes)[0] == printed


def test_lines_of_an_unchanged_command_stay_as_they_are_and_the_agents_own_have_the_rank(tmp_path: Path) -> None:
    out = io.BytesIO()
    pump = Pump(tmp_path)
    path, stream = pump.attach("0.out", "[rank3]: ", out, marks=False)
    pump.start()
    with open(path, "wb", buffering=0) as worker:
        worker.write(b"loss=0.5\n")
    pump.close()
    stream.write_lines("its stack")
    assert out.getvalue() == b"loss=0.5\n[rank3]: its stack\n"


def drawn(*writes: bytes, every: float = 1.0) -> tuple[list[bytes], list[bytes]]:
    """Return what is printed and what is heard of a stream that is written to every so many seconds."""
    (fd, keeper), out, heard = os.pipe(), io.BytesIO(), []
    stream = WorkerStream(b"", out, fd, keeper, listener=heard.append)
    for count, data in enumerate(writes):
        stream.feed(data, count * every)
    stream.finish()
    return out.getvalue().splitlines(), heard


BAR = [b"\r 10%", b"\r 20%", b"\r 30%"]


@pytest.mark.parametrize(
    ("writes", "every", "printed"),
    [
        pytest.param([*BAR, b"\n"], 1, [b" 10%", b" 30%"], id="a bar is printed as it begins and as it ends"),
        pytest.param([*BAR, b"\n"], 10, [b" 10%", b" 20%", b" 30%"], id="and every ten seconds, nothing twice"),
        pytest.param(BAR, 1, [b" 10%", b" 30%"], id="a bar that is left where it is"),
        pytest.param([*BAR, b"\r    \r", b"done\n"], 1, [b" 10%", b"done"], id="a bar that is wiped away"),
        pytest.param([*BAR, b"\n", *BAR, b"\n"], 1, [b" 10%", b" 30%", b" 30%"], id="many short bars"),
        pytest.param([b"10%\r", b"20%\r", b"30%\r", b"\n"], 1, [b"10%", b"30%"], id="returns after the text"),
        pytest.param([b"x" * 70_000, b"y\n"], 1, [b"x" * 70_000, b"y"], id="one that is too long to wait for its end"),
        pytest.param([b"a\r", b"\nb\r", b"\n"], 1, [b"a", b"b"], id="a line's end that comes in two pieces"),
    ],
)
def test_a_line_that_is_drawn_again_and_again(writes: list[bytes], every: float, printed: list[bytes]) -> None:
    assert drawn(*writes, every=every)[0] == printed


def test_each_state_of_a_line_is_heard_once_and_soon() -> None:
    assert drawn(*BAR, b"\n", b"\n", b"loss=1\r\n")[1] == [b" 10%", b" 20%", b" 30%", b"", b"loss=1"]


def test_only_the_end_is_kept(tmp_path: Path) -> None:
    _, tail = pumped(tmp_path, *[b"x" * 40_000 + b"\n"] * 3, b"the end\n")
    assert len(tail) <= 64 * 1024
    assert tail.endswith(b"the end\n")


def test_output_nobody_reads_does_not_stop_the_workers(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    pump = Pump(tmp_path)
    with open(writer, "wb", buffering=0) as closed:
        path, _ = pump.attach("0.out", "", closed)
        pump.start()
        with open(path, "wb", buffering=0) as worker:
            worker.write(b"line\n" * 50_000)
        pump.close()


def test_each_line_is_heard_once(tmp_path: Path) -> None:
    heard: list[bytes] = []
    pump = Pump(tmp_path)
    path, stream = pump.attach("0.out", "[rank3]: ", io.BytesIO())
    stream.listener = heard.append
    pump.start()
    with open(path, "wb", buffering=0) as worker:
        worker.write(b"a\nb")
        worker.write(b"c\nend")
    pump.close()
    assert heard == [b"a", b"bc", b"end"]


def test_something_is_said_between_the_workers_lines(tmp_path: Path) -> None:
    out = io.BytesIO()
    pump = Pump(tmp_path)
    _, stream = pump.attach("0.out", "[rank3]: ", out)
    stream.write_lines("File a\nFile b\n")
    pump.start()
    pump.close()
    assert out.getvalue() == b"[rank3]: File a\n[rank3]: File b\n"
