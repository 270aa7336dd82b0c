"""Imports without the garbage collector: it would go through all that is there again and again and find nothing."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def paused() -> Iterator[None]:
    """Collect nothing within; what has been made until the end stays, and no later collection looks at it."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
