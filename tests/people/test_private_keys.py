"""A person's private key: it serves requests, and no copy of it stays on the disk, however the command ends."""

import base64
import json
import ssl
import tempfile
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from pathlib import Path

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from pytorchjob.cluster.errors import NoCluster
from pytorchjob.cluster.http import Http, Request
from pytorchjob.cluster.kubeconfig import load
from pytorchjob.cluster.options import ConnectOptions
from pytorchjob_operator.kube.kubeconfig import from_kubeconfig


class Asking(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = json.dumps({"has certificate": bool(self.connection.getpeercert(True))}).encode()  # type: ignore[attr-defined]
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.fixture(scope="module")
def pair() -> tuple[bytes, bytes]:
    """A certificate that its server and its client trust, and its key."""
    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "me")])
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), 1)
        .not_valid_before(datetime(2020, 1, 1, tzinfo=UTC))
        .not_valid_after(datetime(2100, 1, 1, tzinfo=UTC))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return made.public_bytes(pem), private


@pytest.fixture
def server(tmp_path: Path, pair: tuple[bytes, bytes]) -> Iterator[str]:
    for name, pem in zip(("cert.pem", "key.pem"), pair, strict=True):
        (tmp_path / name).write_bytes(pem)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "cert.pem", tmp_path / "key.pem")
    context.load_verify_locations(tmp_path / "cert.pem")
    context.verify_mode = ssl.CERT_REQUIRED
    with ThreadingHTTPServer(("127.0.0.1", 0), Asking) as served:
        served.socket = context.wrap_socket(served.socket, server_side=True)
        threading.Thread(target=served.serve_forever, daemon=True).start()
        yield f"https://127.0.0.1:{served.server_address[1]}"
        served.shutdown()


def kubeconfig(folder: Path, server: str, certificate: bytes, key: bytes) -> Path:
    encoded = [base64.b64encode(pem).decode() for pem in (certificate, key)]
    cluster = {"server": server, "certificate-authority-data": encoded[0]}
    user = {"client-certificate-data": encoded[0], "client-key-data": encoded[1]}
    body = {
        "current-context": "dev",
        "contexts": [{"name": "dev", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": user}],
    }
    (folder / "config").write_text(yaml.safe_dump(body))
    return folder / "config"


def test_an_inline_key_serves_requests_and_leaves_no_file(
    tmp_path: Path, scratch: Path, server: str, pair: tuple[bytes, bytes]
) -> None:
    options = ConnectOptions(kubeconfig=str(kubeconfig(tmp_path, server, *pair)))
    for _ in range(2):  # the package remembers the files that it has made, and makes removed ones again
        http = Http(lambda: load(options))
        assert [*scratch.rglob("*")] == []
        assert http.json(Request("GET", "/x")) == {"has certificate": True}


@pytest.mark.parametrize("key", [b"no key", b""], ids=["no key", "empty"])
def test_a_key_that_cannot_be_used_leaves_no_file(
    tmp_path: Path, scratch: Path, pair: tuple[bytes, bytes], key: bytes
) -> None:
    options = ConnectOptions(kubeconfig=str(kubeconfig(tmp_path, "https://127.0.0.1:1", pair[0], key)))
    with pytest.raises(NoCluster):
        Http(lambda: load(options))
    assert [*scratch.rglob("*")] == []


def test_an_operator_outside_of_its_cluster_leaves_no_file(
    tmp_path: Path, scratch: Path, pair: tuple[bytes, bytes]
) -> None:
    found = from_kubeconfig([kubeconfig(tmp_path, "https://127.0.0.1:1", *pair)])
    assert (found.certificate, found.key) == pair
    assert [*scratch.rglob("*")] == []
