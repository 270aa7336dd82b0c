"""Requests to one API server: credentials, limits, attempts. Every answer is JSON, a stream of bytes, or an error.

A request is repeated if the server has refused it and names a time (429, and 503 for reads), if a kept connection was
closed before the answer, and once with new credentials after 401. urllib3's own attempts are off: they would multiply.
"""

import json
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import urlencode

import urllib3
from kubernetes.client.rest import RESTClientObject
from urllib3.exceptions import HTTPError, ProtocolError
from urllib3.util.ssl_ import create_urllib3_context

from pytorchjob import __version__
from pytorchjob.cluster.errors import ClusterError, NoCluster
from pytorchjob.cluster.failures import RequestFailure, explain, no_api_server, unreachable
from pytorchjob.cluster.kubeconfig import Access
from pytorchjob.cluster.options import DEFAULT_SECONDS

Method = Literal["GET", "POST", "PATCH", "DELETE"]
Query = dict[str, str]

_ATTEMPTS = 6
_LONGEST_PAUSE = 10.0
_CONNECT_SECONDS = 10.0
_PIECE = 1 << 16
_FILES = ("ca_certs", "cert_file", "key_file")
_CERTIFICATES = "`kubectl config view` shows where they are from; get a new kubeconfig"


@dataclass(frozen=True, slots=True)
class Request:
    """One request; the body becomes JSON."""

    method: Method
    path: str
    query: Query | None = None
    body: Any = None
    content_type: str = "application/json"


class Http:
    """Sends requests with a person's credentials; `load` finds these again when the server no longer takes them."""

    def __init__(
        self,
        load: Callable[[], Access],
        seconds: float | None = None,
        warn: Callable[[str], None] = lambda text: None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._load, self._warn, self.sleep = load, warn, sleep
        self._seconds = DEFAULT_SECONDS if seconds is None else seconds or None
        self._use(load())

    def json(self, request: Request) -> Any:
        """Return the answer; raises ClusterError."""
        response = self._answer(request, self._seconds)
        try:
            data = response.read()
        except HTTPError as error:
            raise self._broken(error) from error
        for text in response.headers.getlist("Warning"):
            self._warn(_warning(text))
        return self.parsed(data) if data else {}

    def parsed(self, data: bytes) -> dict[str, Any]:
        """Return an answer, or a line of a stream, as an object; raises Unreachable if it is something else."""
        try:
            found = json.loads(data)
        except (ValueError, RecursionError):  # a hostile answer nests deeply
            found = None
        if not isinstance(found, dict):
            raise no_api_server(self.access.source, "something else than an object in JSON")
        return found

    @contextmanager
    def lines(self, request: Request, silence: float | None = None) -> Iterator[Iterator[bytes]]:
        """Open a stream of lines with their ends; `silence`: seconds without data after which it is broken.

        Without it a pause may be as long as any request: a server that dies meanwhile must not hold its reader.
        """
        response = self._answer(request, self._seconds if silence is None else silence)
        try:
            yield self._split(response)
        finally:
            response.close()

    def _use(self, access: Access) -> None:
        self.access = access
        configuration = access.configuration
        self._pool = RESTClientObject(configuration).pool_manager
        for name in _FILES:
            self._pool.connection_pool_kw.pop(name, None)  # the context has read them, and they may be gone
        context = create_urllib3_context(cert_reqs=ssl.CERT_REQUIRED if configuration.verify_ssl else ssl.CERT_NONE)
        # Python 3.13 requires CA extensions that the CAs of many clusters lack; all other clients accept those CAs.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        try:
            if configuration.verify_ssl and configuration.ssl_ca_cert:
                context.load_verify_locations(configuration.ssl_ca_cert)
            elif configuration.verify_ssl:
                context.load_default_certs()
            if configuration.cert_file:
                context.load_cert_chain(configuration.cert_file, configuration.key_file, password=str)
        except (OSError, ValueError) as error:  # a key with a password is among them: nobody is asked for it
            why = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
            raise NoCluster(
                f"{access.source}: a certificate or its key cannot be used: {why}", _CERTIFICATES
            ) from error
        finally:
            access.forget()
        self._pool.connection_pool_kw["ssl_context"] = context

    def _headers(self, request: Request) -> urllib3.HTTPHeaderDict:
        headers = urllib3.HTTPHeaderDict({"Accept": "application/json", "User-Agent": f"pytorchjob/{__version__}"})
        if token := self.access.configuration.get_api_key_with_prefix("BearerToken"):
            headers["Authorization"] = token
        if request.body is not None:
            headers["Content-Type"] = request.content_type
        for name, value in self.access.headers:
            headers.add(name, value)
        return headers

    def _answer(self, request: Request, seconds: float | None) -> urllib3.BaseHTTPResponse:
        """Return an answer below 300, read or not; raises ClusterError."""
        renewed = False
        for attempt in range(_ATTEMPTS):
            try:
                response = self._send(request, seconds)
            except ProtocolError as error:
                if attempt or request.method != "GET":
                    raise self._broken(error) from error
                continue
            except HTTPError as error:
                raise self._broken(error) from error
            if response.status < 300:
                return response
            text = response.read().decode(errors="replace")
            if response.status == 401 and not renewed:
                renewed = True
                self._use(self._load())
            elif (pause := _pause(request, response)) is not None and attempt < _ATTEMPTS - 1:
                self.sleep(pause)
            else:
                break
        raise explain(RequestFailure(response.status, text, self.access.source))

    def _send(self, request: Request, seconds: float | None) -> urllib3.BaseHTTPResponse:
        query = f"?{urlencode(request.query)}" if request.query else ""
        return self._pool.request(
            request.method,
            f"{self.access.configuration.host}{request.path}{query}",
            body=None if request.body is None else json.dumps(request.body).encode(),
            headers=self._headers(request),
            timeout=urllib3.Timeout(connect=min(seconds or _CONNECT_SECONDS, _CONNECT_SECONDS), read=seconds),
            preload_content=False,
            retries=False,
        )

    def _broken(self, error: HTTPError) -> ClusterError:
        """Name the innermost reason: a proxy's or a retry's error wraps what happened."""
        inner = getattr(error, "original_error", None) or error
        kind = type(error).__name__
        return unreachable(kind, str(inner), self.access.configuration.host, self.access.source)

    def _split(self, response: urllib3.BaseHTTPResponse) -> Iterator[bytes]:
        rest = b""
        try:
            for chunk in response.stream(_PIECE, decode_content=True):
                *lines, rest = (rest + chunk).split(b"\n")
                yield from (line + b"\n" for line in lines)
        except HTTPError as error:
            raise self._broken(error) from error
        if rest:
            yield rest


def _pause(request: Request, response: urllib3.BaseHTTPResponse) -> float | None:
    """Return the seconds after which the server wants to be asked again; None if it will refuse again."""
    if response.status != 429 and not (response.status == 503 and request.method == "GET"):
        return None
    asked = response.headers.get("Retry-After")
    if asked is None:
        return 1.0 if response.status == 429 else None
    return min(float(asked), _LONGEST_PAUSE) if asked.isascii() and asked.isdigit() else 1.0


def _warning(header: str) -> str:
    """Return the text of a header such as `299 - "..."`."""
    return header.partition('"')[2].rpartition('"')[0].replace('\\"', '"') or header
