"""Whether the Kubernetes API server answers, as an agent without the coordinator asks."""

import socket
from pathlib import Path

import pytest

from pytorchjob_agent.rendezvous.api_server import HOST, PORT, ApiServer
from tests.fakes.readyz import Asking, Authority, endpoint, says

NEVER = float("-inf")


def test_an_answer_counts_from_the_question_which_is_asked_now_and_then(tmp_path: Path) -> None:
    authority = Authority()
    with endpoint(says("200 OK"), authority.context(tmp_path, "127.0.0.1")) as port:
        agent = Asking(tmp_path, "127.0.0.1", port)
        agent.authorities.write_bytes(authority.pem)
        assert [agent.at(now) for now in (100.0, 101.0, 106.0)] == [100.0, 100.0, 106.0]
    assert agent.at(120.0) == 106.0, "nothing listens any more"


@pytest.mark.parametrize(
    ("at", "host", "certified"),
    [
        pytest.param("127.0.0.1", "127.0.0.1", "127.0.0.1", id="an IPv4 address"),
        pytest.param("::1", "::1", "::1", id="an IPv6 address"),
        pytest.param("::1", "[::1]", "::1", id="an IPv6 address in brackets"),
        pytest.param("127.0.0.1", "localhost", "localhost", id="a name"),
    ],
)
def test_the_address_that_kubernetes_names(tmp_path: Path, at: str, host: str, certified: str) -> None:
    if at == "::1" and not socket.has_dualstack_ipv6():
        pytest.skip("this machine has no IPv6")
    authority = Authority()
    with endpoint(says("200 OK"), authority.context(tmp_path, certified), at) as port:
        agent = Asking(tmp_path, host, port)
        agent.authorities.write_bytes(authority.pem)
        assert agent.at(100.0) == 100.0


def test_the_authorities_of_the_service_account_serve_a_pod_of_an_older_operator(tmp_path: Path) -> None:
    authority = Authority()
    with endpoint(says("200 OK"), authority.context(tmp_path, "127.0.0.1")) as port:
        agent = Asking(tmp_path, "127.0.0.1", port)
        assert agent.at(100.0) == NEVER
        (agent.account / "ca.crt").write_bytes(authority.pem)
        assert agent.at(110.0) == 110.0


def test_authorities_that_are_renewed_count_at_once(tmp_path: Path) -> None:
    authority = Authority()
    with endpoint(says("200 OK"), authority.context(tmp_path, "127.0.0.1")) as port:
        agent = Asking(tmp_path, "127.0.0.1", port)
        agent.authorities.write_bytes(Authority().pem)
        assert agent.at(100.0) == NEVER
        agent.authorities.write_bytes(authority.pem)
        assert agent.at(110.0) == 110.0


def test_a_server_that_answers_no_stranger_gets_the_pods_own_token(tmp_path: Path) -> None:
    def answer(sock: socket.socket, request: bytes) -> None:
        says("200 OK" if b"\r\nAuthorization: Bearer t0ken\r\n" in request else "401 Unauthorized")(sock, request)

    authority = Authority()
    with endpoint(answer, authority.context(tmp_path, "127.0.0.1")) as port:
        agent = Asking(tmp_path, "127.0.0.1", port)
        agent.authorities.write_bytes(authority.pem)
        assert agent.at(100.0) == NEVER
        (agent.account / "token").write_text("t0ken\n")
        assert agent.at(110.0) == 110.0


def test_a_proxy_for_the_script_is_not_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority = Authority()
    with endpoint(says("200 OK"), authority.context(tmp_path, "127.0.0.1")) as port:
        for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, "http://127.0.0.1:1")
        agent = Asking(tmp_path, "127.0.0.1", port)
        agent.authorities.write_bytes(authority.pem)
        assert agent.at(100.0) == 100.0


@pytest.mark.parametrize("env", [{}, {HOST: "127.0.0.1"}, {HOST: "127.0.0.1", PORT: "tcp://x"}])
def test_outside_of_a_cluster_nothing_is_asked(env: dict[str, str]) -> None:
    api_server = ApiServer([], env)
    api_server.check(100.0)
    assert (api_server._asking, api_server.answered_at) == (None, NEVER)
