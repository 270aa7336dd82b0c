"""A fake API server per test, and a client that talks to it."""

from tests.fakes.fixtures import api, client

__all__ = ["api", "client"]
