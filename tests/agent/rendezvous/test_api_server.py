"""Whether the Kubernetes API server answers, as an agent without the coordinator asks."""

import socket

from pytorchjob_agent.rendezvous.api_server import HOST, PORT, ApiServer


def test_a_port_that_answers_counts_from_the_attempt_and_is_asked_now_and_then() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        api_server = ApiServer({HOST: "127.0.0.1", PORT: str(server.getsockname()[1])})
        for now in (100.0, 101.0, 106.0):
            api_server.check(now)
            assert api_server.answered_at == (100.0 if now < 105 else 106.0)
    api_server.check(120.0)
    assert api_server.answered_at == 106.0, "nothing listens any more"


def test_outside_of_a_cluster_nothing_answers() -> None:
    for env in ({}, {HOST: "127.0.0.1"}, {HOST: "127.0.0.1", PORT: "tcp://x"}):
        api_server = ApiServer(env)
        api_server.check(100.0)
        assert api_server.answered_at == float("-inf")
