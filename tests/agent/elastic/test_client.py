"""What an agent says first on each of its connections."""

import socket

from pytorchjob_agent.elastic.client import Client, Standing
from pytorchjob_agent.meeting import MeetingEnv
from pytorchjob_agent.protocol import Beat, Hello, read_from_agent


def _hello(server: socket.socket) -> Hello:
    """Accept a connection, read its first line, and hang up."""
    connection, _ = server.accept()
    with connection, connection.makefile("rb") as lines:
        said = read_from_agent(lines.readline())
    assert isinstance(said, Hello)
    return said


def test_each_hello_tells_the_time_at_which_it_is_sent() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(30)
        env = MeetingEnv("127.0.0.1", server.getsockname()[1], "token", "job", "pod-0", 0)
        hello = Hello("job", "pod-0", "token", 0, "127.0.0.1", 1, "first")
        client = Client(env, Standing(hello), Beat)
        client.start()
        first, second = _hello(server), _hello(server)
        client.close()
    assert 0 < first.clock < second.clock
