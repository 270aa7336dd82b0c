"""A person's way to a cluster, as kubectl finds it: `--kubeconfig`, $KUBECONFIG, ~/.kube/config, or the pod's account.

The kubernetes package reads and merges the files, and understands servers, certificates, proxies and login providers.
Here the chosen context becomes one complete entry first, because the package knows no impersonation, and because of
several files it takes the last current context and one file's folder for all relative paths; kubectl does neither.
"""

import base64
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from kubernetes.client.configuration import Configuration
from kubernetes.config import ConfigException, load_incluster_config, load_kube_config, load_kube_config_from_dict
from kubernetes.config.kube_config import KubeConfigMerger
from yaml import YAMLError

from pytorchjob.cluster.errors import NoCluster
from pytorchjob.cluster.options import ConnectOptions
from pytorchjob.cluster.plugin import Plugin

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_TLS = ("certificate-authority", "certificate-authority-data", "insecure-skip-tls-verify")
_CERTIFICATES = ("client-certificate", "client-certificate-data")
_VIEW = "`kubectl config view` shows what it has"
_CONTEXTS = "`kubectl config get-contexts` lists them; choose one with --context"


@dataclass(frozen=True, slots=True)
class Access:
    """All that a request needs to know of the person and the cluster."""

    configuration: Configuration
    namespace: str
    headers: tuple[tuple[str, str], ...] = ()
    """Impersonation; a name may occur several times."""
    source: str = ""
    """Where it comes from, for messages: the context and its file."""
    scratch: str = ""
    """The folder of the files that hold inline certificates and keys; who has read them removes it with `forget`."""

    def forget(self) -> None:
        """Remove the copies of inline certificates and keys. A process that is killed or replaced leaves none then."""
        if self.scratch:
            shutil.rmtree(self.scratch, ignore_errors=True)


@dataclass(frozen=True, slots=True)
class _Entry:
    """A named cluster, user or context, with the folder that its relative paths start from."""

    body: dict[str, Any]
    folder: Path

    def absolute(self, *keys: str) -> dict[str, Any]:
        """Return the fields with these paths absolute; inline data goes before a file, as for kubectl."""
        paths = {key: str(self.folder / str(self.body[key])) for key in keys if self.body.get(key)}
        return {**self.body, **paths}


def load(options: ConnectOptions, environ: Mapping[str, str] = os.environ) -> Access:
    """Find the cluster and the credentials; runs the kubeconfig's plugin if it has one. Raises NoCluster."""
    paths = _paths(options, environ)
    if not paths and environ.get("KUBERNETES_SERVICE_HOST") and (SERVICE_ACCOUNT / "token").exists():
        return _in_pod(options)
    if not paths:
        remedy = (
            "set KUBECONFIG or give --kubeconfig FILE; without a cluster, `pytorchjob run` runs a job on this machine"
        )
        raise NoCluster("no cluster is configured: there is no kubeconfig, and this is not a pod", remedy)
    with _explained(*paths):
        scratch = tempfile.mkdtemp(prefix="pytorchjob-login-")
        try:
            return _from_files(paths, options, scratch)
        except BaseException:
            shutil.rmtree(scratch, ignore_errors=True)
            raise


def _paths(options: ConnectOptions, environ: Mapping[str, str]) -> list[str]:
    """Return the files that exist; raises NoCluster if the person named files and none of them exists."""
    given = options.kubeconfig or environ.get("KUBECONFIG") or ""
    home = Path(environ.get("HOME", "~")).expanduser() / ".kube" / "config"
    wanted = [options.kubeconfig] if options.kubeconfig else given.split(os.pathsep) if given else [str(home)]
    found = [path for path in wanted if path and Path(path).expanduser().exists()]
    if given and not found:
        where = "--kubeconfig" if options.kubeconfig else "KUBECONFIG"
        raise NoCluster(f"the kubeconfig {given} does not exist", f"correct {where}")
    return found


@contextmanager
def _explained(*paths: str) -> Iterator[None]:
    """Turn what the reader raises into one sentence."""
    source = ", ".join(paths)
    try:
        yield
    except (YAMLError, OSError, ConfigException, AttributeError, KeyError, TypeError, ValueError) as error:
        from pytorchjob.cluster import kubeconfig_faults  # its imports take a while, and most files are good

        raise kubeconfig_faults.find(paths) or _unfit(source, error) from error


def _unfit(source: str, error: Exception) -> NoCluster:
    """Return the error for a file that has the form of a kubeconfig, and not what it needs."""
    if isinstance(error, OSError):
        where = f": {error.filename}" if error.filename else ""
        return NoCluster(f"the kubeconfig {source} cannot be used{where}: {error.strerror or error}", _VIEW)
    if isinstance(error, ConfigException):
        return NoCluster(f"the kubeconfig {source} cannot be used: {error}", _VIEW)
    return NoCluster(f"the kubeconfig {source} is not a kubeconfig: {error!r}", _VIEW)


def _from_files(paths: list[str], options: ConnectOptions, scratch: str) -> Access:
    merged = KubeConfigMerger(os.pathsep.join(paths))
    # For kubectl the first file with a current context decides, for the merger the last.
    current = (str(body["current-context"]) for body in merged.config_files.values() if body.get("current-context"))
    name = options.context or next(current, "")
    if not name:
        raise NoCluster(f"the kubeconfig {', '.join(paths)} has no current context", _CONTEXTS)
    context = _entry(merged, "context", name)
    cluster = _entry(merged, "cluster", str(context.body.get("cluster") or ""))
    user = _entry(merged, "user", str(context.body["user"])) if context.body.get("user") else _Entry({}, Path())
    if not cluster.body.get("server"):
        raise NoCluster(f"the kubeconfig's cluster {context.body.get('cluster')} has no server", _VIEW)
    cluster = _Entry({**cluster.body, "server": _address(cluster, user)}, cluster.folder)
    configuration = _new_configuration()
    if user.body.get("auth-provider"):  # the package renews these and stores what it got in the file
        load_kube_config(os.pathsep.join(paths), name, configuration, temp_file_path=scratch)
        _need_token(configuration, user)
    else:
        load_kube_config_from_dict(
            _flat(cluster, user), client_configuration=configuration, persist_config=False, temp_file_path=scratch
        )
    if not cluster.body.get("proxy-url") and _is_this_machine(configuration.host):
        configuration.proxy = None
    namespace = options.namespace or str(context.body.get("namespace") or "default")
    source = f"context {name} of {', '.join(paths)}"
    return Access(configuration, namespace, tuple(_impersonation(options, user.body)), source, scratch)


def _address(cluster: _Entry, user: _Entry) -> str:
    """Return the server with its scheme, which kubectl adds: https if the kubeconfig has anything about TLS."""
    server = str(cluster.body["server"])
    if "://" not in server:
        tls = any(cluster.body.get(key) for key in _TLS) or any(user.body.get(key) for key in _CERTIFICATES)
        return f"{'https' if tls else 'http'}://{server}"
    if not server.lower().startswith(("http://", "https://")):
        remedy = "write its address, for example https://cluster.example.com:6443"
        raise NoCluster(f"the kubeconfig's server {server} has neither http nor https", remedy)
    return server


def _check_data(entry: _Entry) -> None:
    for key, value in entry.body.items():
        if not key.endswith("-data"):
            continue
        try:
            base64.standard_b64decode(str(value))
        except ValueError as error:
            raise NoCluster(f"the kubeconfig's {key} is not base64", "get a new kubeconfig, or correct it") from error


def _is_this_machine(url: str) -> bool:
    """Whether a server is on this machine: then no proxy of the environment counts, as for kubectl."""
    host = urlsplit(url).hostname or ""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def _need_token(configuration: Configuration, user: _Entry) -> None:
    if not configuration.api_key:
        name = user.body["auth-provider"].get("name")
        remedy = "use the exec plugin of your cloud or company instead; kubectl has dropped such providers, too"
        raise NoCluster(f"the kubeconfig's auth-provider {name} gave no token", remedy)


def _entry(merged: KubeConfigMerger, kind: str, name: str) -> _Entry:
    nodes = merged.config.value[f"{kind}s"]
    for node in nodes:
        if node.value.get("name") == name:
            return _Entry(dict(node.value.get(kind) or {}), Path(node.path).expanduser().resolve().parent)
    known = ", ".join(sorted(str(node.value.get("name")) for node in nodes)) or "none"
    remedy = _CONTEXTS if kind == "context" else f"correct the context's {kind}"
    raise NoCluster(f"the kubeconfig has no {kind} named {name!r}; it has: {known}", remedy)


def _flat(cluster: _Entry, user: _Entry) -> dict[str, Any]:
    """Return a kubeconfig of one context, with absolute paths and with the credentials that a plugin gave."""
    _check_data(cluster)
    _check_data(user)
    login = user.absolute("client-certificate", "client-key")
    if path := login.pop("tokenFile", None):
        login["token"] = (user.folder / str(path)).read_text().strip()
    if (spec := login.pop("exec", None)) and not login.get("token"):
        login.update(_from_plugin(Plugin(spec, user.folder, cluster.body)))
    name = "chosen"
    return {
        "current-context": name,
        "clusters": [{"name": name, "cluster": cluster.absolute("certificate-authority")}],
        "users": [{"name": name, "user": login}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
    }


def _from_plugin(plugin: Plugin) -> dict[str, Any]:
    status = plugin.credentials()
    pem = {"client-certificate-data": "clientCertificateData", "client-key-data": "clientKeyData"}
    given = {
        key: base64.b64encode(str(status[name]).encode()).decode() for key, name in pem.items() if status.get(name)
    }
    return {**given, **({"token": str(status["token"])} if status.get("token") else {})}


def _impersonation(options: ConnectOptions, user: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the headers by which a request acts as another user: the flags, else the kubeconfig's `as` fields."""
    if options.as_user:
        yield "Impersonate-User", options.as_user
        yield from (("Impersonate-Group", group) for group in options.as_groups)
        return
    if not user.get("as"):
        return
    yield "Impersonate-User", str(user["as"])
    if user.get("as-uid"):
        yield "Impersonate-Uid", str(user["as-uid"])
    yield from (("Impersonate-Group", str(group)) for group in user.get("as-groups") or ())
    for key, values in (user.get("as-user-extra") or {}).items():
        yield from ((f"Impersonate-Extra-{quote(str(key).lower(), safe='')}", str(value)) for value in values)


def _in_pod(options: ConnectOptions) -> Access:
    configuration = _new_configuration()
    with _explained():
        load_incluster_config(configuration)
        namespace = options.namespace or (SERVICE_ACCOUNT / "namespace").read_text().strip() or "default"
    return Access(configuration, namespace, tuple(_impersonation(options, {})), "the pod's service account")


def _new_configuration() -> Configuration:
    configuration = Configuration()
    configuration.keep_alive = True  # a proxy drops an idle watch in silence otherwise
    return configuration
