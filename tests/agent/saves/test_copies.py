"""Saves between two agents on this machine: what is copied, and what a peer must not do."""

import json
import os
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytorchjob_agent.contract.messages import RoundId
from pytorchjob_agent.exchange.checksum import Checksum
from pytorchjob_agent.exchange.file_list import HeldFile, ManifestError, link_stays_inside
from pytorchjob_agent.exchange.round_keys import RoundKeys
from pytorchjob_agent.exchange.wire import PeerConnection, PeerRefusedError
from pytorchjob_agent.saves import copies, directory
from pytorchjob_agent.saves.copies import SaveServer
from pytorchjob_agent.saves.held import FullError, HeldSaves
from pytorchjob_agent.saves.held_saves import Choice, SaveId
from pytorchjob_agent.saves.manifest import Manifest, Together
from pytorchjob_agent.saves.placing import place, set_aside
from tests.agent.saves.keys import KEYS, draw, greet, members

ROUND = RoundId(1, 1)
PLAIN = replace(KEYS, certificate="")
"""The keys of a round without the operator's TLS."""


def held_by(folder: Path, limit: int = 10**6, job: str = "job") -> HeldSaves:
    folder.mkdir(exist_ok=True)
    return HeldSaves(folder, job, limit)


def checksum_of(content: bytes) -> str:
    checksum = Checksum()
    checksum.update(content)
    return checksum.text()


def make(
    held: HeldSaves,
    files: dict[str, bytes],
    number: int = 1,
    owner: int = 0,
    round_: RoundId = ROUND,
    together: Together = (),
) -> Manifest:
    """Hold files as a save of this owner."""
    folder, listed = held.new_folder(), []
    for position, (path, content) in enumerate(files.items()):
        (folder / str(position)).write_bytes(content)
        mtime = os.stat(folder / str(position)).st_mtime_ns
        listed.append(HeldFile(path, len(content), mtime, checksum_of(content)))
    manifest = Manifest("job", SaveId(round_, owner, number), tuple(listed), together=together)
    held.keep(manifest, folder)
    return manifest


@pytest.fixture
def own(tmp_path: Path) -> HeldSaves:
    return held_by(tmp_path / "own")


@pytest.fixture
def theirs(tmp_path: Path) -> HeldSaves:
    return held_by(tmp_path / "theirs")


@pytest.fixture
def peer(theirs: HeldSaves) -> Iterator[tuple[str, int]]:
    yield from serve(theirs, KEYS)


@pytest.fixture
def plain_peer(theirs: HeldSaves) -> Iterator[tuple[str, int]]:
    yield from serve(theirs, PLAIN)


def serve(held: HeldSaves, keys: RoundKeys) -> Iterator[tuple[str, int]]:
    server = SaveServer(held, "127.0.0.1")
    server.use(keys)
    yield ("127.0.0.1", server.port)
    server.close()


def test_a_copy_has_the_same_content(own: HeldSaves, theirs: HeldSaves, peer: tuple[str, int]) -> None:
    manifest = make(own, {"latest.pt": b"x" * 3_000_000, "a/b.pt": b""})
    theirs.limit = 10**8
    copies.put(own, manifest, peer, KEYS)
    assert [save.id for save in theirs.list()] == [manifest.id]
    assert theirs.path(manifest, 0).read_bytes() == b"x" * 3_000_000


def test_what_is_held_already_is_not_sent_again(own: HeldSaves, theirs: HeldSaves, peer: tuple[str, int]) -> None:
    copies.put(own, make(own, {"a.pt": b"a"}), peer, KEYS)
    second = make(own, {"a.pt": b"a", "b.pt": b"b"}, number=2)
    own.path(second, 0).unlink()  # sending it would fail
    copies.put(own, second, peer, KEYS)
    assert [save.id.number for save in theirs.list()] == [2, 1]


def test_a_save_is_fetched_and_put_in_place(own: HeldSaves, theirs: HeldSaves, peer: tuple[str, int]) -> None:
    make(theirs, {"step-5/a.pt": b"whole"})
    (own.root / "step-6").mkdir()
    (own.root / "step-6" / "a.pt").write_bytes(b"to")
    (own.root / "step-4").mkdir()
    (own.root / "step-4" / "a.pt").write_bytes(b"older")
    found = copies.get(own, Choice(ROUND, 0, 1), 0, peer, KEYS)
    files, aside = place(own, [found], directory.read(own.root))
    assert (own.root / "step-5" / "a.pt").read_bytes() == b"whole"
    assert ([file.path for file in files], aside) == (["step-5/a.pt"], ["step-4", "step-6"])
    assert not (own.root / "step-6").exists()
    assert not (own.root / "step-4").exists()


def test_a_table_that_was_open_stays_and_a_large_save_that_was_open_goes(own: HeldSaves) -> None:
    manifest = make(own, {"step-5.pt": b"whole"})
    for name in ("step-6.pt", "metrics", "step-7.pt"):
        (own.root / name).write_bytes(b"to")
    _, aside = place(own, [manifest], directory.read(own.root), {"step-6.pt", "metrics"})
    assert aside == ["step-6.pt", "step-7.pt"]
    assert (own.root / "metrics").exists()


def test_a_table_stays_before_it_is_known_to_be_open(own: HeldSaves) -> None:
    (own.root / "metrics.csv").write_bytes(b"to")
    (own.root / "step-6.pt").write_bytes(b"to")
    assert set_aside(own, directory.read(own.root)) == ["step-6.pt"]
    assert (own.root / "metrics.csv").exists()


def test_a_torn_file_under_the_chosen_name_is_replaced(own: HeldSaves) -> None:
    manifest = make(own, {"latest.pt": b"whole"})
    (own.root / "latest.pt").write_bytes(b"torn!")
    place(own, [manifest], directory.read(own.root))
    assert (own.root / "latest.pt").read_bytes() == b"whole"


@pytest.mark.parametrize("linked", [True, False])
def test_a_save_counts_as_long_as_its_files_are_what_was_held(own: HeldSaves, linked: bool) -> None:
    manifest = make(own, {"latest.pt": b"whole"})
    place(own, [manifest], directory.read(own.root), only_replaces=lambda _: linked)
    (own.root / "latest.pt").write_bytes(b"next save")
    assert len(own.list()) == (0 if linked else 1)


def test_an_agent_that_starts_again_knows_its_saves_and_none_of_another_job(own: HeldSaves) -> None:
    make(own, {"latest.pt": b"whole"})
    again = HeldSaves(own.root, "job", 10**6)
    assert len(again.list()) == 1
    again.close()
    own.close()
    assert len(HeldSaves(own.root, "another", 10**6).list()) == 0


def test_a_directory_that_another_job_uses_now_is_refused(own: HeldSaves) -> None:
    make(own, {"latest.pt": b"whole"})
    with pytest.raises(OSError, match="an agent of another job uses"):
        HeldSaves(own.root, "another", 10**6)
    assert len(own.list()) == 1


def test_a_shared_directory_stays_the_jobs_until_its_last_agent_ends(own: HeldSaves) -> None:
    second = HeldSaves(own.root, "job", 10**6)
    own.close()
    with pytest.raises(OSError, match="an agent of another job uses"):
        HeldSaves(own.root, "another", 10**6)
    second.close()
    HeldSaves(own.root, "another", 10**6).close()


def test_agents_that_start_together_name_a_shared_directory_alike(
    own: HeldSaves, monkeypatch: pytest.MonkeyPatch
) -> None:
    second, found, draw = HeldSaves(own.root, "job", 10**6), list[str](), os.urandom

    def interrupted(size: int) -> bytes:
        monkeypatch.undo()
        found.append(second.identity())
        return draw(size)

    monkeypatch.setattr(os, "urandom", interrupted)
    assert [own.identity()] == found
    assert found[0]


def test_agents_of_one_job_that_start_together_share_a_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second one starts while the first one has the lock and writes its job's name."""
    HeldSaves(tmp_path, "former", 10**6).close()
    write, started = os.pwrite, list[Future[HeldSaves]]()

    def interrupted(fd: int, data: bytes, offset: int) -> int:
        monkeypatch.undo()
        started.append(pool.submit(HeldSaves, tmp_path, "job", 10**6))
        wait(started, timeout=0.5)
        return write(fd, data, offset)

    with ThreadPoolExecutor(1) as pool:
        monkeypatch.setattr(os, "pwrite", interrupted)
        first = HeldSaves(tmp_path, "job", 10**6)
        second = started[0].result()
    assert first.identity() == second.identity()


def test_two_saves_of_an_owner_are_kept(own: HeldSaves) -> None:
    for number in range(1, 5):
        make(own, {"latest.pt": bytes(number)}, number)
    assert [save.id.number for save in own.list()] == [4, 3]


def part(held: HeldSaves, owner: int, number: int, round_: int, step: int) -> None:
    """Hold what one of three members saved at this step."""
    manifest = make(held, {f"step-{step}/rank{owner}.pt": b"x"}, number, owner, RoundId(1, round_))
    (held.folder / manifest.name).rename(whole := held.new_folder() / "part")
    held.keep(replace(manifest, writers=3, label=f"step-{step}"), whole)


CHOSEN = Choice.from_text("1.1/0/1/3/step-200")


@pytest.mark.parametrize(
    ("saves", "whole", "kept"),
    [
        pytest.param(
            [(1, 200), (2, 300), (3, 300), (4, 300)], 0, {(1, 200), (3, 300), (4, 300)}, id="rounds that failed"
        ),
        pytest.param([(1, 200), (4, 300)], 0, {(1, 200), (4, 300)}, id="one save of this round"),
        pytest.param(
            [(1, 200), *((4, step) for step in range(300, 801, 100))],
            0,
            {(1, 200), (4, 500), (4, 600), (4, 700), (4, 800)},
            id="none of six is whole",
        ),
        pytest.param(
            [(1, 200), *((4, step) for step in range(300, 901, 100))],
            300,
            {(4, 300), (4, 600), (4, 700), (4, 800), (4, 900)},
            id="many are not whole yet",
        ),
    ],
)
def test_the_parts_with_which_a_round_started_stay_until_a_save_of_its_own_is_whole(
    own: HeldSaves, saves: list[tuple[int, int]], whole: int, kept: set[tuple[int, int]]
) -> None:
    """Rounds that end before all members have saved leave parts of saves that never become whole."""
    for owner in (0, 1):
        for number, (round_, step) in enumerate(saves):
            own.begin(CHOSEN, RoundId(1, round_))
            own.hear(RoundId(1, round_), f"step-{whole}" if whole and step >= whole else "")
            part(own, owner, number, round_, step)
        found = {(save.id.round.number, int(save.label[5:])) for save in own.list() if save.id.owner == owner}
        assert found == kept


def test_when_memory_is_short_the_whole_save_stays_and_a_newer_part_goes(own: HeldSaves) -> None:
    own.begin(None, RoundId(1, 1))
    part(own, 0, 1, 1, 100)
    own.hear(RoundId(1, 1), "step-100")
    own.hear(RoundId(1, 2), "step-300")
    part(own, 0, 2, 1, 200)
    part(own, 0, 3, 1, 300)
    labels = lambda: [save.label for save in own.list()]  # noqa: E731
    assert labels() == ["step-300", "step-200", "step-100"]
    own.limit = directory.used(own.root, []) + 10
    own.make_room(11)
    assert labels() == ["step-300", "step-100"]
    own.limit = directory.used(own.root, []) + 10
    own.make_room(11)
    assert labels() == ["step-100"], "what another round has told does not count"


def test_a_full_memory_refuses_a_copy_and_names_the_sizes(own: HeldSaves, tmp_path: Path) -> None:
    small = held_by(tmp_path / "small", limit=2_000_000)
    small.reserve = 600_000
    server = SaveServer(small, "127.0.0.1")
    server.use(KEYS)
    with pytest.raises(PeerRefusedError, match=r"of 2.0 MB are used, 0.6 MB are kept free.*no room for 1.5 MB"):
        copies.put(own, make(own, {"latest.pt": b"x" * 1_500_000}), ("127.0.0.1", server.port), KEYS)
    server.close()
    assert small.list() == ()


def test_what_was_moved_aside_makes_room_first(own: HeldSaves) -> None:
    make(own, {"latest.pt": b"whole"})
    (own.aside() / "torn").write_bytes(b"x" * 900_000)
    own.make_room(500_000)
    assert not (own.root / ".pytorchjob" / "aside").exists()
    assert len(own.list()) == 1


def test_old_copies_make_room(own: HeldSaves) -> None:
    own.limit = 4_500
    for number in (1, 2):
        make(own, {"latest.pt": b"x" * 1500 + bytes([number])}, number)
    own.make_room(1500)
    assert [save.id.number for save in own.list()] == [2]
    with pytest.raises(FullError):
        own.make_room(5_000)
    assert [save.id.number for save in own.list()] == [2], "the last save of an owner makes no room"


def test_copies_that_arrive_at_the_same_time_have_room_together(own: HeldSaves) -> None:
    with own.receiving(600_000), pytest.raises(FullError), own.receiving(600_000):
        pass
    with own.receiving(600_000):
        pass


@pytest.mark.parametrize(
    "keys",
    [
        pytest.param(replace(KEYS, secret="another"), id="another secret"),
        pytest.param(replace(KEYS, secret=""), id="no secret"),
        pytest.param(draw("secret"), id="the certificate of another round"),
        pytest.param(PLAIN, id="no certificate"),
    ],
)
def test_a_peer_without_the_keys_of_the_round_gets_nothing(
    own: HeldSaves, theirs: HeldSaves, peer: tuple[str, int], keys: RoundKeys
) -> None:
    make(theirs, {"latest.pt": b"whole"})
    with pytest.raises((PeerRefusedError, OSError)):
        copies.get(own, Choice(ROUND, 0, 1), 0, peer, keys)
    assert own.list() == ()


def test_a_server_without_the_keys_of_the_round_gets_nothing(own: HeldSaves, theirs: HeldSaves) -> None:
    """Also one that knows the secret: the copy of an earlier certificate is no proof."""
    server = SaveServer(theirs, "127.0.0.1")
    for other in (draw(KEYS.secret), PLAIN):
        server.use(other)
        with pytest.raises((PeerRefusedError, OSError)):
            copies.put(own, make(own, {"latest.pt": b"x"}), ("127.0.0.1", server.port), KEYS)
        assert theirs.list() == ()
    server.close()


@pytest.mark.parametrize(
    ("keys", "readable"),
    [
        pytest.param(KEYS, False, id="the network shows no weights"),
        pytest.param(PLAIN, True, id="without the operator's TLS nothing is encrypted"),
    ],
)
def test_what_the_network_shows(own: HeldSaves, theirs: HeldSaves, keys: RoundKeys, readable: bool) -> None:
    server, weights = SaveServer(theirs, "127.0.0.1"), b"weights of the model" * 100
    server.use(keys)
    with Wiretap(("127.0.0.1", server.port)) as wiretap:
        copies.put(own, make(own, {"latest.pt": weights}), wiretap.address, keys)
    server.close()
    assert theirs.list()[0].size == len(weights)
    assert (b"weights of the model" in wiretap.seen) is readable
    assert (b"latest.pt" in wiretap.seen) is readable


class Wiretap:
    """Stands between two agents, passes everything on, and keeps what the first one sends."""

    def __init__(self, target: tuple[str, int]) -> None:
        self.seen = b""
        self._target, self._listener = target, socket.create_server(("127.0.0.1", 0))
        self.address: tuple[str, int] = self._listener.getsockname()[:2]
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self) -> "Wiretap":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.join()
        self._listener.close()

    def _serve(self) -> None:
        with self._listener.accept()[0] as client, socket.create_connection(self._target) as server:
            back = threading.Thread(target=self._pass, args=(server, client), daemon=True)
            back.start()
            self.seen = self._pass(client, server)
            back.join()

    def _pass(self, source: socket.socket, target: socket.socket) -> bytes:
        """Pass on until the source ends; return what went through."""
        seen = b""
        while data := source.recv(65_536):
            target.sendall(data)
            seen += data
        with suppress(OSError):
            target.shutdown(socket.SHUT_WR)
        return seen


def test_a_save_of_another_job_is_refused(theirs: HeldSaves, peer: tuple[str, int], tmp_path: Path) -> None:
    other = held_by(tmp_path / "other", job="other")
    manifest = make(other, {"latest.pt": b"x"})
    foreign = Manifest("other", manifest.id, manifest.files)
    with pytest.raises(PeerRefusedError, match="another job"):
        copies.put(other, foreign, peer, KEYS)
    assert theirs.list() == ()


def put_by_hand(peer: tuple[str, int], manifest: Manifest, content: bytes) -> str:
    """A peer that announces a save and sends something else; returns the refusal."""
    connection = PeerConnection(socket.create_connection(peer, timeout=10), PLAIN.secret)
    try:
        connection.ask({"put": manifest.to_json()})
        connection.write_pieces([(0, 0)])
        connection._sock.sendall(content)
        connection._sock.shutdown(socket.SHUT_WR)
        connection.answer()
    except (PeerRefusedError, OSError) as error:
        return str(error)
    finally:
        connection.close()
    return "kept"


@pytest.mark.parametrize(
    ("content", "refusal"),
    [
        pytest.param(b"wrong", "latest.pt: the checksum is not the announced one", id="another content"),
        pytest.param(b"who", "sent 2 bytes less than announced", id="too little"),
        pytest.param(b"whole", "kept", id="what was announced"),
    ],
)
def test_a_peer_that_lies_about_a_file_is_refused(
    theirs: HeldSaves, plain_peer: tuple[str, int], content: bytes, refusal: str
) -> None:
    announced = HeldFile("latest.pt", 5, 1_000_000_000, checksum_of(b"whole"))
    assert refusal in put_by_hand(plain_peer, Manifest("job", SaveId(ROUND, 0, 1), (announced,)), content)
    assert len(theirs.list()) == (refusal == "kept")
    assert not [*theirs.root.glob(".pytorchjob/new-*")]


def test_no_more_is_written_than_announced(theirs: HeldSaves, plain_peer: tuple[str, int]) -> None:
    announced = HeldFile("latest.pt", 5, 1_000_000_000, checksum_of(b"whole"))
    manifest = Manifest("job", SaveId(ROUND, 0, 1), (announced,))
    put_by_hand(plain_peer, manifest, b"whole" + b"x" * 5_000_000)
    assert sum(path.stat().st_size for path in theirs.root.rglob("*") if path.is_file()) < 10_000


@pytest.mark.parametrize(
    "path", ["/etc/passwd", "../a.pt", "a/../../b.pt", "", "a//b.pt", "./a.pt", ".pytorchjob/x", "a\0b", "x" * 2000]
)
def test_a_manifest_names_no_file_outside(path: str) -> None:
    files = [[path, 0, 0, "0" * 64, ""]]
    text = json.dumps({"job": "job", "id": ["1.1", 0, 1], "writers": 1, "label": "", "files": files})
    with pytest.raises(ManifestError):
        Manifest.from_json(text)


@pytest.mark.parametrize("together", [1, [1], [[["a", 0]]], [[[1, 1]]], [[["a", "1"]]], [[["a"]]]])
def test_a_manifest_tells_only_kinds_and_counts(together: object) -> None:
    values = {"job": "job", "id": ["1.1", 0, 1], "writers": 1, "label": "", "files": [["a", 0, 0, "0" * 64, ""]]}
    assert Manifest.from_json(json.dumps(values)).together == ()
    with pytest.raises(ManifestError):
        Manifest.from_json(json.dumps(values | {"together": together}))


@pytest.mark.parametrize(
    ("path", "target", "inside"),
    [
        ("latest", "step-5", True),
        ("a/latest", "../b/c", True),
        ("latest", "../other", False),
        ("latest", "/etc", False),
        ("a/b", "../../x", False),
        ("a/b/u", "../..", True),
        ("a/b/o", "u/../..", False),
        ("latest", "half of \ud800", False),
    ],
)
def test_a_link_stays_inside(path: str, target: str, inside: bool) -> None:
    assert link_stays_inside(path, target) is inside


@pytest.mark.parametrize(
    "files",
    [
        pytest.param([["u", 0, 0, "", "d"], ["u/x", 0, 0, "0" * 64, ""]], id="below a link"),
        pytest.param([["a/u/b/x", 0, 0, "0" * 64, ""], ["a/u", 0, 0, "", "b"]], id="far below a later link"),
        pytest.param([["a", 0, 0, "0" * 64, ""], ["a/b", 0, 0, "0" * 64, ""]], id="below a file"),
        pytest.param([["a", 0, 2**100, "0" * 64, ""]], id="a time of no file"),
        pytest.param([["\ud800", 0, 0, "0" * 64, ""]], id="half a character"),
    ],
)
def test_a_manifest_has_only_files_that_a_directory_can_have(files: list[object]) -> None:
    text = json.dumps({"job": "job", "id": ["1.1", 0, 1], "writers": 1, "label": "", "files": files})
    with pytest.raises(ManifestError):
        Manifest.from_json(text)


MEMBERS = members("secret", 3, ROUND)
"""Three members; the tests send to the first one."""
OPEN = [replace(keys, certificate="") for keys in MEMBERS]


@pytest.mark.parametrize(
    ("keys", "id_", "refusal"),
    [
        pytest.param(
            MEMBERS, SaveId(ROUND, 0, 9), "nobody's but its own", id="in the name of the one that receives it"
        ),
        pytest.param(MEMBERS, SaveId(RoundId(1, 2), 1, 9), "nobody's but its own", id="of a later round"),
        pytest.param(MEMBERS, SaveId(RoundId(1, 0), 1, 9), "nobody's but its own", id="of an earlier round"),
        pytest.param(MEMBERS, SaveId(ROUND, 2, 9), "by it alone", id="in the name of a third member"),
        pytest.param(MEMBERS, SaveId(ROUND, 1, 2**40), "so many", id="with a number that leaves no room for others"),
        pytest.param(MEMBERS, SaveId(ROUND, 1, 1), "this number already", id="another one than is held"),
        pytest.param(MEMBERS, SaveId(ROUND, 1, 2), "", id="its own"),
        pytest.param(OPEN, SaveId(ROUND, 1, 2), "", id="its own, without TLS"),
    ],
)
def test_whose_saves_a_member_takes(
    own: HeldSaves, theirs: HeldSaves, keys: list[RoundKeys], id_: SaveId, refusal: str
) -> None:
    mine, known = make(theirs, {"latest.pt": b"mine"}), make(theirs, {"latest.pt": b"known"}, owner=1)
    server = SaveServer(theirs, "127.0.0.1")
    server.use(keys[0])
    sent = make(own, {"latest.pt": b"sent"}, id_.number, id_.owner, id_.round)
    if refusal:
        with pytest.raises(PeerRefusedError, match=refusal):
            copies.put(own, sent, ("127.0.0.1", server.port, 0), keys[1])
    else:
        copies.put(own, sent, ("127.0.0.1", server.port, 0), keys[1])
    server.close()
    assert theirs.path(mine, 0).read_bytes() == b"mine"
    assert theirs.path(known, 0).read_bytes() == b"known"
    assert (theirs.get(id_) == sent) is not bool(refusal)


def answers(*lines: Callable[[PeerConnection], None]) -> tuple[str, int]:
    """A peer that knows the secret, and answers as it likes."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        connection, _ = greet(KEYS, listener.accept()[0])
        for line in lines:
            line(connection)
        connection.close()
        listener.close()

    threading.Thread(target=serve, daemon=True).start()
    return ("127.0.0.1", listener.getsockname()[1])


def test_another_save_than_the_one_asked_for_is_not_kept(own: HeldSaves) -> None:
    file = HeldFile("latest.pt", 5, 1_000_000_000, checksum_of(b"whole"))
    manifest = Manifest("job", SaveId(ROUND, 0, 2), (file,))
    peer = answers(
        lambda connection: connection.reply({"manifest": manifest.to_json()}),
        lambda connection: connection._sock.sendall(b"whole"),
    )
    with pytest.raises(PeerRefusedError, match="another save"):
        copies.get(own, Choice(ROUND, 0, 1), 0, peer, KEYS)
    assert own.list() == ()


@pytest.mark.parametrize("request_", [
    {"get": ["1.1", 1e999, 0]}, {"get": ["9" * 5000 + ".1", 0, 0]}, {"get": {}}, {"put": "\ud800"}, {"put": 1e999}, {},
])  # fmt: skip
def test_whatever_a_member_asks_it_is_answered(
    own: HeldSaves, theirs: HeldSaves, peer: tuple[str, int], request_: dict[str, Any]
) -> None:
    connection = PeerConnection(KEYS.as_client(socket.create_connection(peer)), KEYS.secret)
    with pytest.raises(PeerRefusedError):
        connection.ask(request_)
    connection.close()


def test_nothing_is_placed_through_a_folder_that_leads_out(own: HeldSaves, tmp_path: Path) -> None:
    manifest = make(own, {"sub/a.pt": b"whole"})
    (tmp_path / "outside").mkdir()
    (own.root / "sub").symlink_to(tmp_path / "outside")
    with pytest.raises(OSError, match="leads through the link"):
        place(own, [manifest], directory.read(own.root))
    assert not [*(tmp_path / "outside").iterdir()]
