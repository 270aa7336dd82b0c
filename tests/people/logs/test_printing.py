"""Merged lines as people and pipes see them."""

import io

from pytorchjob.logs.printing import Entry, Printer

ENTRIES = [
    Entry("rank0", 0, b"2026-01-02T03:04:05Z", b"step=1"),
    Entry("worker-1", 9, b"2026-01-02T03:04:06Z", b"\xff\r"),
]


def printed(*, timestamps: bool = False) -> bytes:
    out = io.BytesIO()
    Printer(out, timestamps=timestamps).write(ENTRIES)
    return out.getvalue()


def test_a_pipe_gets_plain_lines_byte_by_byte() -> None:
    assert printed() == b"[rank0] step=1\n[worker-1] \xff\r\n"


def test_timestamps_are_the_nodes() -> None:
    assert printed(timestamps=True).startswith(b"[rank0] 2026-01-02T03:04:05Z step=1\n")


def test_a_label_is_painted_by_its_number() -> None:
    out = io.BytesIO()
    Printer(out, lambda text, number: f"<{number}{text}>").write(ENTRIES)
    assert out.getvalue() == b"<0[rank0]> step=1\n<9[worker-1]> \xff\r\n"


def test_nothing_is_written_for_no_line() -> None:
    out = io.BytesIO()
    Printer(out).write([])
    assert out.getvalue() == b""
