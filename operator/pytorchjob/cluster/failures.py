"""What a refused or broken request means to a person: one sentence with the cause, and the next step. Pure.

The table of the status codes is `_KINDS`; the rest finds the words that matter in the API server's message.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pytorchjob.cluster.errors import (
    AlreadyExists,
    ApiServerUnreachable,
    ClusterError,
    Missing,
    NoCluster,
    NoPermission,
    NotInstalled,
    Rejected,
)
from pytorchjob_operator import names

_INSTALL = "an administrator has to install the operator; `pytorchjob run` runs a job on this machine meanwhile"
_CANNOT = re.compile(
    r'User "(?P<user>[^"]*)" cannot (?P<verb>\S+) resource "(?P<resource>[^"]+)" in API group "(?P<group>[^"]*)"'
    r'(?: in the namespace "(?P<namespace>[^"]*)"| at the cluster scope)?'
)
_BY_ADMISSION = re.compile(r'\S+ "[^"]+" is forbidden: (?!User )')
"""The words of an admission plugin, which judges the object, not the person: quota, PodSecurity, a missing account."""
_NO_NAMESPACE = re.compile(r'namespaces "([^"]+)" not found')
_SHOWN = 1000
_FORBIDDEN = "it is forbidden"


@dataclass(frozen=True, slots=True)
class RequestFailure:
    """An answer that is not what the request asked for."""

    status: int
    text: str
    """The body as the server sent it: a Status object, or the plain text of something in between."""
    source: str = ""
    """The context and the file that chose this cluster."""

    @property
    def body(self) -> dict[str, Any]:
        """The Status object; empty if the server sent something else."""
        try:
            found = json.loads(self.text)
        except (ValueError, RecursionError):
            return {}
        return found if isinstance(found, dict) else {}

    @property
    def message(self) -> str:
        """The server's own words."""
        plain = "" if self.is_page else self.text  # a proxy's page helps no reader
        return str(self.body.get("message") or plain).strip()[:_SHOWN]

    @property
    def is_page(self) -> bool:
        """Whether the answer is a page for a browser: no API server sends one."""
        return self.text.lstrip().startswith("<")


def explain(failure: RequestFailure) -> ClusterError:
    """Return the error for an answer with a status of 300 or more."""
    try:
        return _KINDS.get(failure.status, _unknown)(failure)
    except (AttributeError, KeyError, TypeError):  # fields of other types than an API server's
        return no_api_server(failure.source, f"an unknown error, with status {failure.status}")


def _unauthorized(failure: RequestFailure) -> ClusterError:
    remedy = "your token or certificate has expired or belongs to another cluster: log in again, or choose --context"
    why = f": {failure.message}" if failure.message else ""
    return NoCluster(f"the API server does not accept your credentials ({failure.source}){why}", remedy)


def _forbidden(failure: RequestFailure) -> ClusterError:
    found = _CANNOT.search(failure.message)
    if found is None:
        if "exceeded quota" in failure.message:
            remedy = "ask for less, delete what you do not need, or ask an administrator for more quota"
            return Rejected(failure.message, remedy)
        causes = (failure.body.get("details") or {}).get("causes")
        if causes or "denied the request" in failure.message or _BY_ADMISSION.match(failure.message):
            return Rejected(failure.message, "change the object as the message asks, or ask an administrator")
        return NoPermission(f"the API server refuses it: {failure.message or _FORBIDDEN}", "ask an administrator")
    resource = ".".join(part for part in (found["resource"], found["group"]) if part)
    place = f" in the namespace {found['namespace']}" if found["namespace"] else " in the whole cluster"
    where = f" -n {found['namespace']}" if found["namespace"] else " --all-namespaces"
    check = f"ask an administrator for it; `kubectl auth can-i {found['verb']} {resource}{where}` checks it"
    return NoPermission(f"{found['user']} may not {found['verb']} {resource}{place}", check)


def _not_found(failure: RequestFailure) -> ClusterError:
    if space := _NO_NAMESPACE.search(failure.message):
        remedy = f"choose another with -n, or create it: kubectl create namespace {space[1]}"
        return Missing(f"the namespace {space[1]} does not exist", remedy)
    if failure.is_page:
        return no_api_server(failure.source, f"a page, with status {failure.status}")
    if not failure.body:
        return NotInstalled(f"the cluster does not know {names.KIND}s ({failure.source})", _INSTALL)
    return Missing(failure.message)


def _conflict(failure: RequestFailure) -> ClusterError:
    if failure.body.get("reason") == "AlreadyExists":
        details = failure.body.get("details") or {}
        what = f"{details.get('kind', 'object')} {details.get('name', '')}".strip()
        return AlreadyExists(f"{what} already exists", "choose another name, or delete it first")
    return ClusterError(f"another client changed it at the same moment: {failure.message}", "repeat the command")


def _invalid(failure: RequestFailure) -> ClusterError:
    causes = (failure.body.get("details") or {}).get("causes") or []
    lines = [f"{cause['field']}: {cause['message']}" for cause in causes if cause.get("field") and cause.get("message")]
    listed = "\n  ".join(dict.fromkeys(lines)) or failure.message
    return Rejected(f"the API server refuses the object:\n  {listed}", "correct these fields")


def _bad_request(failure: RequestFailure) -> ClusterError:
    return Rejected(f"the API server does not understand the request: {failure.message}")


def _busy(failure: RequestFailure) -> ClusterError:
    remedy = "repeat the command in a minute"
    return ApiServerUnreachable(
        f"the API server has too much to do and refused several attempts: {failure.message}", remedy
    )


def _unknown(failure: RequestFailure) -> ClusterError:
    why = f"{failure.status}: {failure.message}" if failure.message else f"status {failure.status}"
    if failure.status >= 500:
        remedy = "repeat the command; if it fails again, ask an administrator"
        return ApiServerUnreachable(f"the API server fails with {why}", remedy)
    if failure.status < 400:
        return no_api_server(failure.source, f"a redirection, with status {failure.status}")
    return ClusterError(f"the API server refuses it with {why}")


_KINDS: dict[int, Callable[[RequestFailure], ClusterError]] = {
    400: _bad_request,
    401: _unauthorized,
    403: _forbidden,
    404: _not_found,
    409: _conflict,
    422: _invalid,
    429: _busy,
}


def no_api_server(source: str, answer: str) -> ApiServerUnreachable:
    """Return the error for an answer that no API server gives: of a login page, a proxy, or another program."""
    remedy = "correct the server in the kubeconfig, or log in to the network or proxy in front of it"
    return ApiServerUnreachable(f"what answers is no API server ({source}): it sends {answer}", remedy)


def unreachable(kind: str, why: str, server: str, source: str) -> ApiServerUnreachable:
    """Return the error for a request without an answer; `kind` is the name of the HTTP library's exception."""
    cause, remedy = _NO_ANSWER.get(kind, (why, "check the network, and whether the cluster runs"))
    if kind == "NewConnectionError" and "refused" not in why:
        cause, remedy = (
            why.rpartition(": ")[2],
            "check the network and your VPN, or choose another context with --context",
        )
    if "CERTIFICATE_VERIFY_FAILED" in why or "Hostname mismatch" in why:
        cause = f"its certificate is not trusted: {_reason(why)}"
        remedy = "the kubeconfig's certificate-authority or tls-server-name does not fit this server: get a new one"
    return ApiServerUnreachable(f"the API server {server} does not answer ({source}): {cause}", remedy)


def _reason(why: str) -> str:
    found = re.search(r"verify failed: ([^(\]]+)", why)
    return found[1].strip() if found else why


_RUNS = "check that the cluster runs, or choose another context with --context"
_NO_ANSWER = {
    "NewConnectionError": ("it refuses connections", _RUNS),
    "NameResolutionError": ("its name is unknown", "check the server's name in the kubeconfig, your DNS and your VPN"),
    "ConnectTimeoutError": ("no connection within the time limit", "check your VPN, firewall and proxy-url"),
    "ReadTimeoutError": ("no answer within the time limit", "repeat it with a longer --request-timeout"),
    "ProxyError": ("the proxy refuses the connection", "check proxy-url in the kubeconfig, or HTTPS_PROXY"),
    "ProtocolError": ("it closed the connection", "repeat the command"),
}
