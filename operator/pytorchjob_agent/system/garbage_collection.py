"""Pauses the garbage collector during large imports: it would scan all objects repeatedly and find nothing."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def paused() -> Iterator[None]:
    """Pause within this context; later collections ignore all objects that exist at its end."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
