"""A text on which processes agree that share a directory."""

import os
import uuid
from contextlib import suppress
from pathlib import Path


def first_text(path: Path, text: str) -> str:
    """Return the text of this file, which the first process that asks for it writes. Raises OSError.

    The file gets its name once it has its text: who opened it earlier would read nothing.
    """
    new = path.with_name(f"{path.name}.{uuid.uuid4().hex}")
    new.write_text(text)
    try:
        with suppress(FileExistsError):
            os.link(new, path)
        return path.read_text()
    finally:
        new.unlink()
