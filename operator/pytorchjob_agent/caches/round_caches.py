"""The caches of one agent, from round to round: what it offers, and what a new pod fetches before its workers start."""

import threading
import time
from contextlib import suppress

from pytorchjob_agent.caches import pod, sources
from pytorchjob_agent.caches.exchange import CacheServer, Fetch
from pytorchjob_agent.caches.pod import PodCaches
from pytorchjob_agent.caches.sources import Source
from pytorchjob_agent.exchange.round_keys import RoundKeys
from pytorchjob_agent.exchange.wire import PeerRefusedError
from pytorchjob_agent.rendezvous.extension import Extension, OpenRound, OwnPod, Registered
from pytorchjob_agent.rendezvous.published import Awaited, Published
from pytorchjob_agent.rendezvous.signed_store import SignedStore
from pytorchjob_agent.system.console import say

FETCH_SECONDS = 20.0
"""How long the workers of a new pod wait for caches at most."""
_NONE = ""
"""What an agent without caches publishes, so that no new pod waits for it."""
_PAUSE, _LONGEST_PAUSE = 0.02, 0.5
_BUILD_NS = 600 * 10**9
"""How long one library may be in the making."""


class NoCaches(Extension):
    """Without the operator's directory for caches: nothing is offered and nothing fetched."""

    def open(self, round_: OpenRound) -> None:
        """Publish that there are none."""
        with suppress(OSError, RuntimeError):  # the round's store is gone, and so is the round
            _published(round_.store).write(_NONE)


class SharedCaches(Extension):
    """The caches of an agent that exchanges them with the other members."""

    def __init__(self, caches: PodCaches, address: str) -> None:
        """Open the port for peers. Raises OSError."""
        self._caches, self._address = caches, address
        self._server = CacheServer(caches.folder, caches.key, address)
        self._thread: threading.Thread | None = None
        self._fetch: Fetch | None = None
        self._asked = False
        """Whether the members of a round were asked already; from then on the workers make what is missing."""
        self._until, self._cleared_ns = 0.0, 0

    def open(self, round_: OpenRound) -> None:
        """Publish how full the caches are. If they are empty, fetch them in a thread of its own."""
        store, keys, folder = round_.store, RoundKeys.of(round_.assigned), self._caches.folder
        self._server.use(keys)
        self._thread = self._fetch = None
        if not keys.secret:
            return
        self._clear_up()
        try:
            own = Source(store.assigned.rank, self._address, self._server.port, self._caches.key, folder.fill())
            _published(store).write(own.to_json())
        except (OSError, RuntimeError) as error:
            say(f"warning: no caches are exchanged in this round: {error}")
            return
        if own.fill or self._asked:
            return
        self._until = time.monotonic() + FETCH_SECONDS
        self._fetch = Fetch(folder, self._caches.key, keys)
        work = (own, round_, self._fetch)
        self._thread = threading.Thread(target=self._search, args=work, name="caches", daemon=True)
        self._thread.start()

    def wait(self, round_: OpenRound) -> None:
        """Wait for the fetch; when its time is over, it ends and the workers start."""
        thread, fetch = self._thread, self._fetch
        if thread is None or fetch is None:
            return
        while thread.is_alive() and round_.goes_on() and time.monotonic() < self._until:
            thread.join(_PAUSE)
        self._asked = round_.goes_on()
        fetch.end()

    def close(self) -> None:
        """Close the port."""
        if self._fetch is not None:
            self._fetch.end()
        self._server.close()

    def _clear_up(self) -> None:
        """Remove what killed workers have left half written, if no other pod uses the folder."""
        now = time.time_ns()
        with suppress(OSError):
            if self._caches.folder.claim() and (cut := self._caches.folder.remove_cut(self._cleared_ns)):
                say(f"removed from the caches, because their compiler was killed: {', '.join(cut)[:500]}")
            self._caches.folder.share()
        self._cleared_ns = now - _BUILD_NS

    def _search(self, own: Source, round_: OpenRound, fetch: Fetch) -> None:
        try:
            store, pause = round_.connect(), _PAUSE
            others = Awaited(_published(store), sources.sample(own.rank, store.assigned.size), self._until)
            while not others.over(time.monotonic()) and round_.goes_on():
                time.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
            if others.silent and round_.goes_on():
                silent = ", ".join(map(str, others.silent))
                say(f"node {silent} has not published its caches within {FETCH_SECONDS:g} s")
            self._ask(fetch, sources.order(own, others.found, store.assigned.size))
        except (OSError, RuntimeError) as error:
            say(f"warning: no caches are fetched: {error}")

    def _ask(self, fetch: Fetch, peers: list[Source]) -> None:
        started = time.monotonic()
        for peer in peers:
            try:
                fetch.run((peer.address, peer.port))
                break
            except (PeerRefusedError, OSError) as error:
                say(f"caches of node {peer.rank}: {error}")
        if fetch.files:
            seconds = time.monotonic() - started
            say(f"fetched {fetch.files} files of caches, {fetch.bytes} bytes, in {seconds:.2f} s")


def _published(store: SignedStore) -> Published[Source]:
    return Published(store, "caches", Source.from_json)


def _create(of: OwnPod) -> Extension:
    """Return the caches of this agent; without the operator's directory, or a port, there are none to exchange."""
    caches = pod.open_caches(of.environ)
    if caches is None:
        return NoCaches()
    try:
        return SharedCaches(caches, of.address)
    except OSError as error:
        say(f"warning: no caches are exchanged: {error}")
        return NoCaches()


CACHES = Registered(_create, pod.prepare)
