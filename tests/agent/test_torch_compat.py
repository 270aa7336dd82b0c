"""Versions and builds of torch."""

import logging
import os
import socket
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
from pytorchjob_agent import torch_compat
from tests.ports import free_port

pytestmark = pytest.mark.torch


def older(name: str, size: int = 1) -> None:
    """A function of an older torch."""


def test_only_what_this_version_knows_is_passed() -> None:
    assert torch_compat.supported(older, name="x", newer=1) == {"name": "x"}


class WithoutLibuv:
    """TCPStore of a build without libuv."""

    def __init__(self, *args: Any, use_libuv: bool = True, **kwargs: Any) -> None:
        if use_libuv:
            raise RuntimeError("use_libuv was requested but PyTorch was built without libuv support")


def test_a_build_without_libuv_is_recognised() -> None:
    assert torch_compat.lacks_libuv(WithoutLibuv)


def test_this_build_of_torch_has_it() -> None:
    assert not torch_compat.lacks_libuv(torch_compat._dist.TCPStore)


def test_a_plain_store_works_without_libuv() -> None:
    assert not torch_compat.lacks_libuv(torch_compat.plain(WithoutLibuv))


def test_a_users_wish_for_shared_stores_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "0")
    torch_compat.separate_stores()
    assert os.environ["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] == "0"


def test_a_port_of_a_store_is_free_and_the_system_gives_it_to_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    taken, free = int(free_port()), int(free_port())
    assert torch_compat.quiet_port(lambda: 1) < lowest
    with socket.create_server(("", taken)):
        monkeypatch.setattr(torch_compat, "_QUIET_PORTS", [taken] * 99 + [free])
        assert torch_compat.quiet_port(lambda: 1) == free
        monkeypatch.setattr(torch_compat, "_QUIET_PORTS", [taken] * 100)
        assert torch_compat.quiet_port(lambda: 1) == 1


def test_torchs_log_formatter_need_not_import_more(capsys: pytest.CaptureFixture[str]) -> None:
    name = "torch._dynamo.config"
    record = logging.makeLogRecord({"msg": "it failed", "exc_info": (ValueError, ValueError("no such luck"), None)})
    torch_compat.keep_tracebacks_cheap()
    handlers = [
        handler for handler in logging.getLogger("torch").handlers if torch_compat.write_traceback in handler.filters
    ]
    known = name in sys.modules
    for handler in handlers:
        handler.handle(record)
    assert handlers != []
    assert (record.exc_text, record.exc_info) == ("ValueError: no such luck", None)
    assert (name in sys.modules) is known
