"""The server that a library posts progress to: real connections, with Python's own client."""

import json
import select
import socket
import stat
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pytorchjob_agent.observers.status_server import StatusServer
from pytorchjob_agent.script.observation import Observation
from pytorchjob_agent.script.status_request import LONGEST_BODY, SERVER_URL, TOKEN_FILE

DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class Posts:
    """A server, and what it has accepted."""

    def __init__(self, directory: Path) -> None:
        self.found: list[tuple[int, Observation]] = []
        self.server = StatusServer(directory, lambda local_rank, new: self.found.append((local_rank, new)))

    def post(self, status: object, local_rank: int = 0, token: str | None = None) -> tuple[int, str]:
        """Post as Hugging Face's Trainer does; returns the status and the text of the answer."""
        env = self.server.env(local_rank, {})
        bearer = Path(env[TOKEN_FILE]).read_text() if token is None else token
        headers = {"Authorization": f"Bearer {bearer}", "Content-Type": "application/json"}
        body = json.dumps({"trainerStatus": status}).encode()
        request = urllib.request.Request(env[SERVER_URL], data=body, headers=headers, method="POST")
        try:
            with DIRECT.open(request, timeout=30) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.server.port), timeout=30)


@pytest.fixture
def posts(tmp_path: Path) -> Iterator[Posts]:
    made = Posts(tmp_path)
    yield made
    made.server.close()


def test_a_post_arrives_with_its_local_rank(posts: Posts) -> None:
    status = {"progressPercentage": 50, "metrics": [{"name": "loss", "value": "0.5"}]}
    assert posts.post(status, local_rank=3) == (200, "{}")
    assert posts.found == [(3, Observation(percent=50, metrics={"loss": 0.5}))]


def test_a_wrong_token_and_a_wrong_body_change_nothing(posts: Posts) -> None:
    assert posts.post({}, token="other")[0] == 401
    status, text = posts.post({"progressPercentage": 500})
    assert (status, json.loads(text)) == (
        400,
        {"message": "trainerStatus.progressPercentage is not a number from 0 to 100"},
    )
    assert posts.found == []


def test_only_the_pods_user_reads_the_token_and_only_the_loopback_serves(posts: Posts) -> None:
    file = Path(posts.server.env(0, {})[TOKEN_FILE])
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert len(file.read_text()) >= 32
    assert posts.server.env(0, {})[SERVER_URL].startswith("http://127.0.0.1:")


def test_each_round_has_its_own_token(tmp_path: Path) -> None:
    tokens = set()
    for name in ("1", "2"):
        (tmp_path / name).mkdir()
        posts = Posts(tmp_path / name)
        file = Path(posts.server.env(0, {})[TOKEN_FILE])
        tokens.add(file.read_text())
        posts.server.close()
        assert not file.exists()
    assert len(tokens) == 2


@pytest.mark.parametrize(
    ("own", "expected"),
    [
        pytest.param({SERVER_URL: "https://trainer"}, {}, id="the user's own server stays"),
        pytest.param({}, {SERVER_URL, TOKEN_FILE}, id="otherwise it is the agent's"),
        pytest.param({"HTTPS_PROXY": "http://proxy"}, {SERVER_URL, TOKEN_FILE}, id="a proxy for other addresses"),
        pytest.param({"http_proxy": "http://proxy"}, {SERVER_URL, TOKEN_FILE, "no_proxy"}, id="a proxy for all"),
        pytest.param(
            {"HTTP_PROXY": "http://proxy", "NO_PROXY": "10.0.0.1, 127.0.0.1"}, {SERVER_URL, TOKEN_FILE}, id="not for us"
        ),
        pytest.param({"ALL_PROXY": "http://proxy", "no_proxy": "*"}, {SERVER_URL, TOKEN_FILE}, id="for nothing"),
    ],
)
def test_the_variables_of_a_worker(posts: Posts, own: dict[str, str], expected: set[str]) -> None:
    assert posts.server.env(0, own).keys() == set(expected)


def test_hosts_without_a_proxy_stay_without_one(posts: Posts) -> None:
    found = posts.server.env(0, {"http_proxy": "http://proxy", "NO_PROXY": "10.0.0.1,.cluster.local"})
    assert found["no_proxy"] == "10.0.0.1,.cluster.local,127.0.0.1"


def test_silent_connections_block_nothing(posts: Posts) -> None:
    silent = [posts.connect() for _ in range(8)]
    silent[0].sendall(b"POST /ranks/0/status HTTP/1.1\r\n")
    assert posts.post({"progressPercentage": 1})[0] == 200
    assert [connection.recv(1) for connection in silent] == [b""] * 8, "each is closed in the end"
    for connection in silent:
        connection.close()


def test_a_client_that_sends_byte_by_byte_is_closed_in_the_end(posts: Posts) -> None:
    sent = 0
    with posts.connect() as connection:
        while sent < 1000 and not select.select([connection], [], [], 0.05)[0]:
            connection.sendall(b"x")
            sent += 1
        assert 0 < sent < 1000


def test_too_many_connections_are_closed(posts: Posts) -> None:
    many = [posts.connect() for _ in range(40)]
    assert all(_ends(connection) for connection in many)
    for connection in many:
        connection.close()


def _ends(connection: socket.socket) -> bool:
    try:
        while connection.recv(4096):
            pass
    except ConnectionResetError:
        pass
    return True


def test_too_many_requests_are_refused_and_later_ones_are_not(posts: Posts) -> None:
    with ThreadPoolExecutor(4) as pool:
        answers = {status for status, _ in pool.map(lambda _: posts.post({}), range(100))}
    assert answers <= {200, 429}
    assert 200 in answers


def test_a_body_that_is_too_long_is_refused_before_it_is_read(posts: Posts) -> None:
    with posts.connect() as connection:
        connection.sendall(f"POST /ranks/0/status HTTP/1.1\r\nContent-Length: {LONGEST_BODY + 1}\r\n\r\n".encode())
        assert connection.recv(4096).startswith(b"HTTP/1.1 413 ")


def test_a_server_that_is_closed_is_gone(tmp_path: Path) -> None:
    posts = Posts(tmp_path)
    with posts.connect() as connection:
        posts.server.close()
        assert connection.recv(1) == b""
    with pytest.raises(ConnectionRefusedError):
        posts.connect()
