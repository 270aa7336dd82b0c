"""A kubeconfig's current context, for an operator that a developer runs outside of its cluster.

The kubernetes package reads it. It is imported when a kubeconfig is read and not before: it costs 20 MB, and the
operator's image does without it.
"""

import asyncio
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml

from pytorchjob_operator.errors import OperatorError
from pytorchjob_operator.kube.endpoint import ApiEndpoint, FileToken, FixedToken, TokenSource

_REFUSED = {
    "cluster": ("proxy-url", "tls-server-name"),
    "user": ("username", "as", "as-uid", "as-groups"),
}
"""Fields without which a request would go elsewhere, or as another user."""


@dataclass(frozen=True, slots=True)
class _Entry:
    """A named cluster, user or context."""

    body: Mapping[str, Any]
    folder: Path
    """Of its file: its relative paths start there."""

    def get(self, key: str) -> Any:
        return self.body.get(key)


def from_kubeconfig(paths: list[Path]) -> ApiEndpoint:
    """Use the current context of one or several kubeconfig files; raises OperatorError."""
    found = [str(path) for path in paths if path.exists()]
    if not found:
        raise OperatorError(f"KUBECONFIG: the file {', '.join(map(str, paths))} does not exist; correct the variable")
    source = ", ".join(found)
    # The package writes inline certificates and keys to files: they go as soon as they are read.
    with _explained(source), TemporaryDirectory(prefix="pytorchjob-login-") as scratch:
        name, context, user = _checked(found, source)
        configuration = _configuration(found, name, scratch)
        return ApiEndpoint(
            server=str(configuration.host).rstrip("/"),
            namespace=str(context.get("namespace") or "default"),
            token=_token_source(found, name, configuration, user),
            ca=_read(configuration.ssl_ca_cert),
            insecure=not configuration.verify_ssl,
            certificate=_read(configuration.cert_file),
            key=_read(configuration.key_file),
        )


@dataclass(slots=True)
class LoginToken:
    """A token of a plugin or a provider: the kubernetes package renews it when it expires."""

    configuration: Any = field(repr=False)
    load: Callable[[], Any] = field(repr=False)
    """Logs in again, and returns the new configuration."""
    _token: str | None = field(default=None, repr=False)
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock, repr=False)

    async def __call__(self, *, fresh: bool = False) -> str | None:
        """Return the token; one login serves all requests that wait for it."""
        refused = self._token if fresh else None
        async with self._lock:
            if fresh and self._token == refused:
                self.configuration = await asyncio.to_thread(self.load)
            self._token = await asyncio.to_thread(_token, self.configuration)
            return self._token


def _token_source(paths: list[str], context: str, configuration: Any, user: _Entry) -> TokenSource:
    if user.get("tokenFile") and not user.get("token"):
        return FileToken(user.folder / str(user.get("tokenFile")))
    if not user.get("exec") and not user.get("auth-provider"):
        return FixedToken(_token(configuration))
    if not configuration.api_key and not configuration.cert_file:
        raise OperatorError(
            f"{user.folder}: the kubeconfig's login gave no token and no certificate; the log shows why"
        )
    return LoginToken(configuration, lambda: _logged_in(paths, context))


def _logged_in(paths: list[str], context: str) -> Any:
    with TemporaryDirectory(prefix="pytorchjob-login-") as scratch:
        return _configuration(paths, context, scratch)


def _configuration(paths: list[str], context: str, scratch: str) -> Any:
    from kubernetes.client import Configuration
    from kubernetes.config import load_kube_config

    configuration = Configuration()
    load_kube_config(os.pathsep.join(paths), context, configuration, persist_config=False, temp_file_path=scratch)
    return configuration


def _checked(paths: list[str], source: str) -> tuple[str, _Entry, _Entry]:
    """Return the current context, its name and its user; raises OperatorError for what the client cannot do."""
    from kubernetes.config.kube_config import KubeConfigMerger

    merged = KubeConfigMerger(os.pathsep.join(paths))
    # For kubectl the first file with a current context decides, for the merger the last.
    current = (str(body["current-context"]) for body in merged.config_files.values() if body.get("current-context"))
    name = next(current, "")
    if not name:
        raise OperatorError(f"{source}: current-context is not set; run `kubectl config use-context NAME`")
    context = _find(merged, "context", name, source)
    cluster = _find(merged, "cluster", str(context.get("cluster")), source)
    user = _find(merged, "user", str(context.get("user")), source) if context.get("user") else _Entry({}, Path())
    if not cluster.get("server"):
        raise OperatorError(f"{source}: cluster.server is missing")
    for kind, entry in (("cluster", cluster), ("user", user)):
        for key in _REFUSED[kind]:
            if entry.get(key):
                raise OperatorError(f"{source}: {kind}.{key} is not supported; use a context without it")
    return name, context, user


def _find(merged: Any, kind: str, name: str, source: str) -> _Entry:
    for node in (merged.config.value if merged.config else {}).get(f"{kind}s") or ():
        if node.value.get("name") == name:
            return _Entry(node.value.get(kind) or {}, Path(node.path).resolve().parent)
    raise OperatorError(f"{source}: {kind}s has no entry named {name!r}")


@contextmanager
def _explained(source: str) -> Iterator[None]:
    """Turn what the package raises into one sentence."""
    try:
        from kubernetes.config import ConfigException
    except ImportError as error:
        remedy = "install it (pip install 'pytorchjob[cli]'), or run the operator in a pod"
        raise OperatorError(f"{source}: the kubernetes package that reads it is missing; {remedy}") from error
    try:
        yield
    except (ConfigException, yaml.YAMLError, OSError, ValueError) as error:
        raise OperatorError(f"{source}: cannot be used: {error}") from error
    except (AttributeError, KeyError, TypeError) as error:
        raise OperatorError(f"{source}: is not a kubeconfig: {error!r}") from error


def _token(configuration: Any) -> str | None:
    header = configuration.get_api_key_with_prefix("BearerToken")
    return str(header).removeprefix("Bearer ") if header else None


def _read(path: str | None) -> bytes | None:
    return Path(path).read_bytes() if path else None
