"""Caches between two agents on this machine: what a new pod gets, and what a peer must not do."""

import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from hashlib import sha256
from math import inf
from pathlib import Path

import pytest

from pytorchjob_agent.caches import exchange, round_caches
from pytorchjob_agent.caches.directory import CacheFolder
from pytorchjob_agent.caches.exchange import CacheServer, Fetch
from pytorchjob_agent.caches.pod import PodCaches
from pytorchjob_agent.caches.round_caches import NoCaches, SharedCaches
from pytorchjob_agent.contract.messages import Assigned, RoundId
from pytorchjob_agent.exchange.round_keys import RoundKeys
from pytorchjob_agent.exchange.wire import PeerConnection, PeerRefusedError
from pytorchjob_agent.rendezvous.extension import OpenRound
from pytorchjob_agent.rendezvous.signed_store import SignedStore
from tests.agent.rendezvous.stores import Store
from tests.agent.saves.keys import KEYS, draw, greet

KEY = "key"
FILES = {
    "inductor/ab/code.py": b"print()",
    "inductor/fxgraph/cd/graph": b"g" * 2_000_000,
    "triton/K/kernel.cubin": b"",
    "headers/a.h.gch": b"precompiled",
    "cuda/index": b"index",
    "cuda/a/b": b"entry",
    "hub/models--a--b/blobs/1": b"weights",
}
LINK = "hub/models--a--b/snapshots/r/config.json"


def fill(folder: CacheFolder) -> None:
    for path, content in FILES.items():
        file = folder.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
        os.utime(file, (1e9, 1e9))
    link = folder.root / LINK
    link.parent.mkdir(parents=True)
    link.symlink_to("../../blobs/1")
    os.utime(link, (1e9, 1e9), follow_symlinks=False)


def content(folder: CacheFolder) -> dict[str, bytes]:
    found = (path for path in folder.root.rglob("*") if path.is_file() and path.name != ".lock")
    return {str(path.relative_to(folder.root)): path.read_bytes() for path in found}


@pytest.fixture
def own(tmp_path: Path) -> CacheFolder:
    return CacheFolder(tmp_path / "own")


@pytest.fixture
def theirs(tmp_path: Path) -> CacheFolder:
    folder = CacheFolder(tmp_path / "theirs")
    fill(folder)
    return folder


@pytest.fixture
def peer(theirs: CacheFolder) -> Iterator[tuple[str, int]]:
    server = CacheServer(theirs, KEY, "127.0.0.1")
    server.use(KEYS)
    yield ("127.0.0.1", server.port)
    server.close()


def test_a_new_pod_gets_all_caches(own: CacheFolder, peer: tuple[str, int]) -> None:
    fetch = Fetch(own, KEY, KEYS)
    fetch.run(peer)
    assert content(own) == {**FILES, LINK: b"weights"}
    assert (own.root / LINK).readlink() == Path("../../blobs/1")
    assert (fetch.files, fetch.bytes) == (len(FILES) + 1, sum(map(len, FILES.values())))


def test_what_a_pod_has_stays(own: CacheFolder, peer: tuple[str, int]) -> None:
    (own.root / "cuda/index").write_bytes(b"own")
    (own.root / "inductor/ab").mkdir()
    (own.root / "inductor/ab/code.py").write_bytes(b"own")
    Fetch(own, KEY, KEYS).run(peer)
    found = content(own)
    assert (found["inductor/ab/code.py"], found["cuda/index"]) == (b"own", b"own")
    assert "cuda/a/b" not in found, "CUDA's cache is of use only as a whole"


@pytest.mark.parametrize(("key", "keys", "reason"), [
    pytest.param("another", KEYS, "of other versions", id="another key"),
    pytest.param(KEY, replace(KEYS, secret="guess"), "does not know the secret", id="another secret"),
    pytest.param(KEY, replace(KEYS, secret=""), "does not know the secret", id="no secret"),
    pytest.param(KEY, draw(KEYS.secret), "certificate verify failed", id="the certificate of another round"),
])  # fmt: skip
def test_who_gets_nothing(own: CacheFolder, peer: tuple[str, int], key: str, keys: RoundKeys, reason: str) -> None:
    with pytest.raises((PeerRefusedError, OSError), match=reason):
        Fetch(own, key, keys).run(peer)
    assert content(own) == {}


def test_a_file_that_changes_meanwhile_is_passed_over(
    own: CacheFolder, theirs: CacheFolder, peer: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    checksum = exchange._checksum

    def changed(path: Path, file: exchange.CachedFile) -> str | None:
        if path.name in ("code.py", "index"):
            path.write_bytes(b"changed")
        return checksum(path, file)

    monkeypatch.setattr(exchange, "_checksum", changed)
    Fetch(own, KEY, KEYS).run(peer)
    found = content(own)
    assert "inductor/ab/code.py" not in found
    assert "cuda/a/b" not in found, "a unit without one of its files"
    assert found["hub/models--a--b/blobs/1"] == b"weights"


def test_a_disk_without_room_gets_nothing(
    own: CacheFolder, peer: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchange, "_SPARE", 2**60)
    with pytest.raises(PeerRefusedError, match="the disk has"):
        Fetch(own, KEY, KEYS).run(peer)


Conversation = Callable[[PeerConnection], None]


def pretend(answers: Conversation) -> tuple[str, int]:
    """A peer that knows the secret, and answers as it likes."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        connection, _ = greet(KEYS, listener.accept()[0])
        answers(connection)
        connection.close()
        listener.close()

    threading.Thread(target=serve, daemon=True).start()
    return ("127.0.0.1", listener.getsockname()[1])


def offer(connection: PeerConnection, *entries: list[object]) -> None:
    connection.reply({"files": json.dumps(entries)})
    connection.read_places(len(entries))


def wrong_bytes(connection: PeerConnection) -> None:
    offer(connection, ["inductor/ab/x.py", 3, 1, ""])
    connection.reply({"place": 0, "checksum": sha256(b"abc").hexdigest()})
    connection._sock.sendall(b"abd")


def another_file(connection: PeerConnection) -> None:
    offer(connection, ["inductor/ab/x.py", 3, 1, ""], ["inductor/ab/y.py", 3, 1, ""])
    connection.reply({"place": 1, "checksum": sha256(b"abc").hexdigest()})


def outside(connection: PeerConnection) -> None:
    connection.reply({"files": json.dumps([["inductor/../../x", 3, 1, ""]])})


def below_a_link(connection: PeerConnection) -> None:
    connection.reply({"files": json.dumps([["hub/m/u", 0, 1, "a"], ["hub/m/u/x", 3, 1, ""]])})


def halves_of_characters(connection: PeerConnection) -> None:
    connection.reply({"files": json.dumps([["inductor/\ud800/x.py", 3, 1, ""]])})


def out_through_a_link(connection: PeerConnection) -> None:
    connection.reply({"files": json.dumps([["hub/m/a/u", 0, 1, ".."], ["hub/m/a/o", 0, 1, "u/../../.."]])})


def too_few(connection: PeerConnection) -> None:
    offer(connection, ["inductor/ab/x.py", 3, 1, ""])
    connection.reply({"place": 0, "checksum": sha256(b"abc").hexdigest()})
    connection._sock.sendall(b"ab")


@pytest.mark.parametrize(("answers", "reason"), [
    pytest.param(wrong_bytes, "the checksum is not", id="other bytes"),
    pytest.param(another_file, "another file", id="another file"),
    pytest.param(outside, "not in a cache", id="a name outside"),
    pytest.param(below_a_link, "below another one", id="a name below a link"),
    pytest.param(halves_of_characters, "not in a cache", id="a name of no file system"),
    pytest.param(out_through_a_link, "leads out", id="a link out of the cache through another link"),
    pytest.param(too_few, "less than announced", id="too few bytes"),
])  # fmt: skip
def test_a_peer_that_lies_is_refused(own: CacheFolder, answers: Conversation, reason: str) -> None:
    with pytest.raises(PeerRefusedError, match=reason):
        Fetch(own, KEY, KEYS).run(pretend(answers))
    assert content(own) == {}


def test_a_fetch_that_has_had_its_time_ends_and_keeps_what_is_whole(own: CacheFolder) -> None:
    sent = threading.Event()

    def slow(connection: PeerConnection) -> None:
        offer(connection, ["inductor/ab/x.py", 3, 1, ""], ["inductor/ab/y.py", 3, 1, ""])
        connection.reply({"place": 0, "checksum": sha256(b"abc").hexdigest()})
        connection._sock.sendall(b"abc")
        connection.reply({"place": 1, "checksum": sha256(b"abc").hexdigest()})
        sent.set()
        threading.Event().wait(60)

    fetch, errors = Fetch(own, KEY, KEYS), list[Exception]()

    def run(peer: tuple[str, int]) -> None:
        try:
            fetch.run(peer)
        except (PeerRefusedError, OSError) as error:
            errors.append(error)

    thread = threading.Thread(target=run, args=(pretend(slow),))
    thread.start()
    assert sent.wait(30)
    fetch.end()
    thread.join(30)
    assert errors
    assert [*content(own)] in (["inductor/ab/x.py"], [])


def member(store: Store, rank: int, size: int = 2) -> SignedStore:
    assigned = Assigned(RoundId(1, 1), rank, size, rank, size, "127.0.0.1", 1, 0, secret=KEYS.secret)
    return SignedStore(store, assigned)


def opened(store: SignedStore, *, goes_on: bool = True) -> OpenRound:
    return OpenRound(store.assigned, store, lambda: store, lambda: goes_on)


def shared(folder: CacheFolder, key: str = KEY) -> SharedCaches:
    return SharedCaches(PodCaches(key, folder), "127.0.0.1")


def bring(caches: SharedCaches, store: SignedStore) -> None:
    caches.open(opened(store))
    caches.wait(opened(store))


def test_members_find_each_other_in_the_store(own: CacheFolder, theirs: CacheFolder) -> None:
    store, full, empty = Store(), shared(theirs), shared(own)
    bring(full, member(store, 0))
    bring(empty, member(store, 1))
    assert content(own) == content(theirs)
    full.close()
    empty.close()


def test_members_that_are_late_are_waited_for(own: CacheFolder, theirs: CacheFolder) -> None:
    store, full, empty = Store(), shared(theirs), shared(own)
    empty.open(opened(member(store, 1)))
    time.sleep(4)  # the other one stops its workers meanwhile
    bring(full, member(store, 0))
    empty.wait(opened(member(store, 1)))
    assert content(own) == content(theirs)
    full.close()
    empty.close()


def test_members_without_caches_cost_a_new_pod_no_time(
    own: CacheFolder, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(round_caches, "FETCH_SECONDS", inf)
    store, caches = Store(), shared(own)
    NoCaches().open(opened(member(store, 0)))
    bring(caches, member(store, 1))
    assert not own.fill()
    assert not capsys.readouterr().err
    caches.close()


def test_an_agent_that_publishes_nothing_is_named(
    own: CacheFolder, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(round_caches, "FETCH_SECONDS", 0.05)
    caches = shared(own)
    caches.open(opened(member(Store(), 1)))
    assert caches._thread is not None
    caches._thread.join()
    assert "node 0 has not published its caches within 0.05 s" in capsys.readouterr().err
    caches.close()


def test_workers_start_when_a_peer_is_silent(own: CacheFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(round_caches, "FETCH_SECONDS", 0.2)
    listener = socket.create_server(("127.0.0.1", 0))
    store, caches = Store(), shared(own)
    other = member(store, 0)
    other.write("caches/0", json.dumps(["127.0.0.1", listener.getsockname()[1], KEY, 9]))
    started = time.thread_time()
    bring(caches, member(store, 1))
    assert not own.fill()
    assert time.thread_time() - started < 1, "it waits without work"
    caches.close()
    listener.close()


def test_a_round_that_ends_ends_the_wait(own: CacheFolder) -> None:
    store, caches = member(Store(), 1), shared(own)
    caches.open(opened(store, goes_on=False))
    caches.wait(opened(store, goes_on=False))
    assert not caches._asked, "the next round asks again"
    caches.close()
