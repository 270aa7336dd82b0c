"""The API server's public keys for service account tokens: fetched at start, kept, and renewed.

Any service account may read them (ClusterRole system:service-account-issuer-discovery). A token with an unknown key
asks for them again, but not often: anyone may send such a token.
"""

import asyncio
import logging
from contextlib import suppress

from pytorchjob_operator.app.waiting import event_or_timeout, until_available
from pytorchjob_operator.errors import ApiError, OperatorError, Unavailable
from pytorchjob_operator.kube import pod_token
from pytorchjob_operator.kube.client import ApiClient
from pytorchjob_operator.kube.pod_token import Keys

logger = logging.getLogger(__name__)
KEYS_PATH = "/openid/v1/jwks"
DISCOVERY_PATH = "/.well-known/openid-configuration"
RENEW_SECONDS = 3600.0
"""The keys are fetched again this often, so that a key that the API server has dropped is dropped here too."""
PAUSE_SECONDS = 10.0
"""Least time between two fetches."""


class KeyRing:
    """The keys of one API server. `keys` and `issuer` may be read from any thread."""

    def __init__(self, client: ApiClient, pause: float = PAUSE_SECONDS, renew: float = RENEW_SECONDS) -> None:
        """Start without keys; call it in the event loop of the client. The times are seconds."""
        self._client, self._pause, self._renew = client, pause, renew
        self._loop, self._wanted = asyncio.get_running_loop(), asyncio.Event()
        self.keys: Keys = {}
        self.issuer = ""
        """The issuer of tokens; empty if the API server does not report it."""

    def refresh(self) -> None:
        """Have the keys fetched again soon. May be called from any thread."""
        with suppress(RuntimeError):  # the process ends, and its loop is closed
            self._loop.call_soon_threadsafe(self._wanted.set)

    async def load(self) -> None:
        """Fetch the keys; wait while the API server is unavailable. Raises OperatorError if it refuses them."""
        try:
            await until_available(self._fetch, "the API server's keys for service account tokens")
        except ApiError as error:
            raise OperatorError(
                f"the coordinator cannot read {KEYS_PATH} of the API server: {error}; bind the ClusterRole"
                " system:service-account-issuer-discovery to the operator's service account, or disable the"
                " coordinator (chart: coordinator.enabled=false)"
            ) from error

    async def run(self) -> None:
        """Fetch the keys again when asked and once an hour. Failures keep the known keys."""
        while True:
            await asyncio.sleep(self._pause)
            await event_or_timeout(self._wanted, self._renew)
            self._wanted.clear()
            try:
                await self._fetch()
            except ApiError as error:
                logger.warning("the API server's keys for service account tokens could not be renewed: %s", error)

    async def _fetch(self) -> None:
        """Replace the keys and the issuer. Raises ApiError; a set without a usable key counts as unavailable."""
        found = pod_token.read_keys(await self._client.get_path(KEYS_PATH))
        if not found:
            raise Unavailable(0, "NoKeys", f"{KEYS_PATH} has no key for RS256, RS384, RS512, ES256, ES384 or ES512")
        if found.keys() != self.keys.keys():
            logger.info("keys for service account tokens: %s", ", ".join(sorted(kid[:16] for kid in found)))
        issuer = await self._issuer()
        self.keys, self.issuer = found, issuer

    async def _issuer(self) -> str:
        try:
            document = await self._client.get_path(DISCOVERY_PATH)
        except Unavailable:
            raise
        except ApiError:
            return ""
        issuer = document.get("issuer")
        return issuer if isinstance(issuer, str) else ""
