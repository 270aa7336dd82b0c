"""A member of another round, whose values are in the same process as the store that is attacked."""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count

from pytorchjob_agent.contract.messages import Assigned, RoundId
from pytorchjob_agent.rendezvous import round_store
from pytorchjob_agent.rendezvous.signed_store import SignedStore
from tests.attacks.bystander import Bystander, timed, watching_beside

_PLACE = Assigned(RoundId(1, 1), 1, 2, 1, 2, "127.0.0.1", 1, 0, secret="another round")


@contextmanager
def neighbour(host: str, port: int) -> Iterator[Bystander]:
    """Measure how soon it reads what it has written, over a connection of its own."""
    store = SignedStore(round_store.beside(round_store.connect(host, port), "neighbour"), _PLACE)
    numbers = count()

    def write_and_read() -> None:
        value = str(next(numbers))
        store.write("key", value)
        found = store.read("key", _PLACE.rank)
        assert found is not None
        assert found.value == value

    what = "a member of another round: writes a value to the store and reads it"
    with watching_beside(what, lambda: timed(write_and_read)) as found:
        yield found
