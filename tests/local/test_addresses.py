import socket
from collections.abc import Iterator

import pytest

from pytorchjob.local.addresses import MAX_WORKERS, Addresses, Claims, settle
from pytorchjob_operator.errors import InvalidJob
from pytorchjob_operator.model import PyTorchJob, master_port
from pytorchjob_operator.names import ReplicaType
from tests.local.jobs import job, python

PLACES = Addresses("tiny", "ml", "127.9.9")


def parsed(**options: object) -> PyTorchJob:
    spec = job(Master=python(""), Worker=python("", **options))  # type: ignore[arg-type]
    return PyTorchJob.model_validate(spec)


@pytest.fixture
def claims() -> Iterator[Claims]:
    held = Claims()
    yield held
    held.release()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("tiny-master-0.tiny", "127.9.9.1", id="a replica's name with its Service"),
        pytest.param("tiny-worker-0.tiny.ml", "127.9.9.2", id="with the namespace"),
        pytest.param("tiny-worker-1.tiny.ml.svc.cluster.local:29500", "127.9.9.3:29500", id="in full, with a port"),
        pytest.param("--x=tiny-master-0:80 y", "--x=127.9.9.1:80 y", id="v1's short name before a port"),
        pytest.param("a http://tiny-master-0.tiny/z b", "a http://127.9.9.1/z b", id="inside a text"),
        pytest.param("run of tiny-worker-0", "run of tiny-worker-0", id="a short name that may be any word stays"),
        pytest.param("tiny-worker-0", "tiny-worker-0", id="also alone"),
        pytest.param("my-tiny-worker-0.tiny", "my-tiny-worker-0.tiny", id="another job's name stays"),
        pytest.param("tiny-worker-0-x:1", "tiny-worker-0-x:1", id="a longer name stays"),
        pytest.param("tiny-master-0.other", "tiny-master-0.other", id="another Service's name stays"),
    ],
)
def test_names_of_replicas_become_addresses(text: str, expected: str) -> None:
    assert PLACES.translate(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("tiny-master-0", "127.9.9.1", id="a short name that stands alone"),
        pytest.param("--master-addr=tiny-master-0", "--master-addr=127.9.9.1", id="as the value of an option"),
        pytest.param("on tiny-master-0 now", "on tiny-master-0 now", id="not in the middle of a text"),
    ],
)
def test_whole_words_may_be_short_names(text: str, expected: str) -> None:
    assert PLACES.translate(text, whole_words=True) == expected


def test_where_there_is_one_address_all_replicas_share_it() -> None:
    assert Addresses("tiny", "ml", None).of(ReplicaType.WORKER, 7) == "127.0.0.1"


def test_a_free_port_stays_the_jobs(claims: Claims) -> None:
    with socket.socket() as probe:
        probe.bind(("", 0))
        port = probe.getsockname()[1]
    given = parsed(ports=[{"name": "pytorchjob-port", "containerPort": port}])
    found, places, notes = settle(given, claims)
    assert found.spec.pytorch_replica_specs.worker == given.spec.pytorch_replica_specs.worker
    assert places.of(ReplicaType.MASTER, 0).startswith("127.")
    assert not any(str(port) in note for note in notes)


def test_a_port_of_another_run_is_left_to_it(claims: Claims) -> None:
    first, _, _ = settle(parsed(), claims)
    others = Claims()
    second, _, notes = settle(parsed(), others)
    others.release()
    roles = [job.spec.pytorch_replica_specs.master for job in (first, second)]
    assert len({master_port(role.template) for role in roles if role}) == 2
    assert "is in use on this machine" in notes[-1]


def test_a_port_that_somebody_listens_on_is_not_taken(claims: Claims) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        assert not claims.claim(other.getsockname()[1])


def test_more_replicas_than_addresses_are_refused(claims: Claims) -> None:
    with pytest.raises(InvalidJob, match=r"Worker.replicas: 254 is too many: one machine runs at most 253"):
        settle(parsed(replicas=MAX_WORKERS + 1), claims)
