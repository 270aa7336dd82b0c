from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.people.scripted_server import Answer, ScriptedServer, Serve


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Servers that give these answers for as long as the test lasts."""
    with ExitStack() as stack:

        def start(*answers: Answer) -> ScriptedServer:
            return stack.enter_context(ScriptedServer(*answers).running())

        yield start
