"""TLS for thousands of connections: each takes far less memory than asyncio gives it, and no work for nothing."""

import ssl
from asyncio import sslproto

READ_BUFFER = 16 * 1024
"""Bytes that a TLS connection reads at once: a record of the largest size, and no message of ours is near that."""


def save_memory() -> None:
    """Let every TLS connection of this process that is made from now on have a small buffer.

    asyncio has 256 KiB for each, all of it in use from the start: a quarter of a gigabyte for a thousand agents that
    send a hundred bytes a second. The attribute is not documented; without it this does nothing, and memory is lost.
    """
    sslproto.SSLProtocol.max_size = READ_BUFFER


def save_work(context: ssl.SSLContext) -> None:
    """Send no session tickets: agents never resume one, and two cost a tenth of a handshake."""
    context.num_tickets = 0
