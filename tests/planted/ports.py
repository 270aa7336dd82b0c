"""Defects of an agent's ports, of what members prove to each other there, and of the caches that they exchange."""

from collections.abc import Sequence

from tests.planted import Planted

CACHES, EXCHANGE, RENDEZVOUS, SAVES, SYSTEM = (
    f"pytorchjob_agent/{package}" for package in ("caches", "exchange", "rendezvous", "saves", "system")
)
_READER, _OURS = "a reader: no test noticed it", "ours: a guard against an attacker or a crowd"
_SERVER = ("tests/agent/exchange/test_server.py",)
_PORT = ("tests/agent/system/test_port.py",)
_COPIES = ("tests/agent/saves/test_copies.py",)
_MEMBERS = ("tests/attacks/test_members.py",)
_EXCHANGE = ("tests/agent/caches/test_exchange.py",)
_METRICS = ("tests/agent/system/test_metrics_server.py",)
_API_SERVER = ("tests/attacks/test_api_server.py", "tests/agent/rendezvous/test_api_server.py")
_WATCHER = ("tests/agent/saves/test_watcher.py",)

DEFECTS: Sequence[Planted] = [
    # What members prove.
    Planted(
        "peers without any secret are trusted",
        _READER,
        f"{EXCHANGE}/wire.py",
        "isinstance(mac, str) and bool(secret)",
        "isinstance(mac, str)",
        _SERVER,
    ),
    Planted(
        "a proof without the random texts of its connection",
        _READER,
        f"{EXCHANGE}/wire.py",
        '_bytes(f"{kind} {nonces} {text}")',
        '_bytes(f"{kind} {text}")',
        _SERVER,
    ),
    Planted(
        "a request is taken without its proof",
        _OURS,
        f"{EXCHANGE}/wire.py",
        'return _verified(values, "request", self._secret, self.nonces)',
        'return _object(str(values.get("request")))',
        _SERVER,
    ),
    Planted(
        "an answer is taken without its proof",
        _OURS,
        f"{EXCHANGE}/wire.py",
        'return _verified(self._read(), "answer", self._secret, self._nonces)',
        'return _object(str(self._read().get("answer")))',
        _SERVER,
    ),
    Planted(
        "a file is kept whatever its checksum",
        _OURS,
        f"{SAVES}/arrival.py",
        "if of_pieces(listed) != file.checksum:",
        "if False:",
        _COPIES,
    ),
    Planted(
        "a cached file is kept whatever its checksum",
        _OURS,
        f"{EXCHANGE}/wire.py",
        "if checksum.text() != file.checksum:",
        "if False:",
        ("tests/agent/caches/test_exchange.py",),
    ),
    Planted(
        "a piece that comes twice is written twice",
        _OURS,
        f"{SAVES}/arrival.py",
        "if self._kept or piece in self._checksums:",
        "if False:",
        ("tests/agent/saves/test_streams.py",),
    ),
    Planted(
        "a piece whose helper failed is left out",
        _OURS,
        f"{SAVES}/streams.py",
        "if not moved:",
        "if False:",
        ("tests/agent/saves/test_streams.py",),
    ),
    Planted(
        "a helper that hangs is waited for",
        _OURS,
        f"{SAVES}/streams.py",
        "                self._end_helpers()\n            return",
        "                pass\n            return",
        ("tests/agent/saves/test_streams.py",),
    ),
    Planted(
        "a server compares no owner with the sender",
        _READER,
        f"{SAVES}/copies.py",
        "if keys.certificate and sender != id_.owner:",
        "if False:",
        _MEMBERS,
    ),
    Planted(
        "a server trusts a sender that shows no certificate",
        _OURS,
        f"{EXCHANGE}/round_keys.py",
        "ssl.CERT_REQUIRED",
        "ssl.CERT_OPTIONAL",
        _MEMBERS,
    ),
    Planted(
        "a client takes any member for the one that it asks",
        _OURS,
        f"{EXCHANGE}/round_keys.py",
        "name = SERVER_NAME if rank is None else member_name(rank)",
        "name = SERVER_NAME",
        _MEMBERS,
    ),
    Planted(
        "a save of another round is taken",
        _OURS,
        f"{SAVES}/copies.py",
        "(id_.round != keys.round or id_.owner == keys.rank)",
        "id_.owner == keys.rank",
        _COPIES,
    ),
    Planted(
        "a session of TLS is resumed",
        _OURS,
        f"{EXCHANGE}/round_keys.py",
        "context.num_tickets = 0",
        "context.num_tickets = 2",
        ("tests/agent/exchange/test_round_keys.py",),
    ),
    Planted(
        "a request of a round that is over is answered",
        _OURS,
        f"{EXCHANGE}/server.py",
        "if keys != self.keys:",
        "if False:",
        _SERVER,
    ),
    # The port.
    Planted(
        "a connection has no deadline",
        _OURS,
        f"{SYSTEM}/port.py",
        "if caller.deadline <= now:",
        "if False:",
        _PORT,
    ),
    Planted(
        "a first message may have any size",
        _OURS,
        f"{SYSTEM}/port.py",
        "if len(caller.data) > self._rules.most_bytes:",
        "if False:",
        _PORT,
    ),
    Planted(
        "first messages may have any size together",
        _OURS,
        f"{SYSTEM}/port.py",
        "if self._held > _MOST_HELD:",
        "if False:",
        _PORT,
    ),
    Planted(
        "a thread is never free again",
        _OURS,
        f"{SYSTEM}/port.py",
        "self._free += 1",
        "self._free += 0",
        _SERVER,
    ),
    Planted(
        "those that wait are not told so",
        _OURS,
        f"{SYSTEM}/port.py",
        "if self._waiting and now - self._told_at >= _PATIENCE_SECONDS:",
        "if False:",
        _SERVER,
    ),
    Planted(
        "what one peer sends ends the port",
        _OURS,
        f"{SYSTEM}/port.py",
        "except Exception:  # whatever one peer sends",
        "except OSError:  # whatever one peer sends",
        _PORT,
    ),
    Planted(
        "nobody is displaced",
        _OURS,
        "pytorchjob_agent/contract/unauthenticated.py",
        "displaced = self._displace(shares) if len(shares) >= self._limits[stage] else None",
        "displaced = None",
        ("tests/coordinator/test_unauthenticated.py",),
    ),
    Planted(
        "without a free descriptor nobody is displaced",
        _OURS,
        f"{SYSTEM}/port.py",
        "displaced = self._unauthenticated.displace()",
        "displaced = None",
        _PORT,
    ),
    # Caches.
    Planted(
        "a cache's parent leads out",
        _READER,
        f"{CACHES}/directory.py",
        "target = make_parent(self.root, path)",
        "target = self.root / path\n        target.parent.mkdir(parents=True, exist_ok=True)",
        ("tests/agent/caches/test_caches.py",),
    ),
    Planted(
        "caches of another image are sent",
        _OURS,
        f"{CACHES}/exchange.py",
        'if request.get("caches") != self._key:',
        "if False:",
        _EXCHANGE,
    ),
    Planted(
        "caches fill the disk",
        _OURS,
        f"{CACHES}/exchange.py",
        "if free < _SPARE * size:",
        "if False:",
        _EXCHANGE,
    ),
    Planted(
        "a cached file is taken for another one",
        _OURS,
        f"{CACHES}/exchange.py",
        'if header.get("place") != place:',
        "if False:",
        _EXCHANGE,
    ),
    Planted(
        "a cached file is offered while it is written",
        _OURS,
        f"{CACHES}/directory.py",
        "and (info.st_dev, info.st_ino) not in writing",
        "and True",
        ("tests/agent/caches/test_caches.py",),
    ),
    Planted(
        "a peer may offer caches of any size",
        _OURS,
        f"{CACHES}/listing.py",
        "if sum(file.size for file in found) > MOST_BYTES or not are_apart",
        "if not are_apart",
        ("tests/agent/caches/test_caches.py",),
    ),
    # Metrics.
    Planted(
        "a defect of the metrics ends their port",
        _OURS,
        f"{SYSTEM}/metrics_server.py",
        "except Exception as error:",
        "except OSError as error:",
        _METRICS,
    ),
    Planted(
        "every request is a scrape",
        _OURS,
        f"{SYSTEM}/metrics_server.py",
        "if not request.startswith(_METRICS):",
        "if False:",
        _METRICS,
    ),
    # The API server, and a directory that hangs.
    Planted(
        "an API server that is not ready counts",
        _READER,
        f"{RENDEZVOUS}/api_server.py",
        "return answer.read(len(_READY)) == _READY",
        'return answer.read(len(_READY)).startswith(b"HTTP/1.1 ")',
        _API_SERVER,
    ),
    Planted(
        "whatever has a certificate of the cluster is its API server",
        _OURS,
        f"{RENDEZVOUS}/api_server.py",
        "context.verify_flags &= ~ssl.VERIFY_X509_STRICT",
        "context.check_hostname = False",
        _API_SERVER,
    ),
    Planted(
        "a sparse file is read although memory cannot hold it",
        _READER,
        f"{SAVES}/watcher.py",
        "if self.on_full is None and size > self._held.limit:",
        "if False:",
        _WATCHER,
    ),
    Planted(
        "the end of a round waits for a directory that hangs",
        _READER,
        f"{SAVES}/watcher.py",
        "while_it_moves(call, self._silent, lambda: time.monotonic() < until)",
        "call(Progress())",
        _WATCHER,
    ),
]
