"""Whether a file of a known format is whole, by its first and last bytes. Pure.

A process that ends during a save leaves a file that is closed and never changes again. Its format often shows it.
"""

import json
from typing import Any

HEAD_BYTES, TAIL_BYTES = 1 << 20, 65_536 + 22
_ZIP, _ZIP_END, _ZIP_END_BYTES = b"PK\x03\x04", b"PK\x05\x06", 22
_TENSORS_HEAD = 8


def is_whole(path: str, size: int, head: bytes, tail: bytes) -> bool:
    """Return False if the file is cut: an archive of torch.save without its directory, or safetensors too short.

    `head` and `tail` are the first HEAD_BYTES and the last TAIL_BYTES. True for every other format.
    """
    if path.endswith(".safetensors"):
        return size >= _length_of_tensors(head)
    if head.startswith(_ZIP):
        return _has_directory(tail)
    return not path.endswith((".pt", ".pth", ".ckpt", ".bin", ".distcp")) or not _ZIP.startswith(head)


def is_proved(path: str, size: int, head: bytes, tail: bytes) -> bool:
    """Return True only if the format shows that the file is whole: its writer writes a directory or a length."""
    known = path.endswith(".safetensors") or head.startswith(_ZIP)
    return known and is_whole(path, size, head, tail)


def _has_directory(tail: bytes) -> bool:
    """Return whether the end of a ZIP archive is there: a record, whose last two bytes count those of a comment."""
    start = tail.rfind(_ZIP_END)
    record = tail[start:] if start >= 0 else b""
    comment = int.from_bytes(record[_ZIP_END_BYTES - 2 : _ZIP_END_BYTES], "little")
    return len(record) >= _ZIP_END_BYTES + comment


def _length_of_tensors(head: bytes) -> int:
    """Return the least bytes of a safetensors file: the length of its header, the header, what this lists.

    Source: github.com/huggingface/safetensors, "Format". Of a header that is longer than the head only its length.
    """
    start = _TENSORS_HEAD + int.from_bytes(head[:_TENSORS_HEAD], "little")
    if start > HEAD_BYTES or start > len(head):
        return max(start, _TENSORS_HEAD)
    try:
        header = json.loads(head[_TENSORS_HEAD:start])
        return start + max((_end_of(tensor) for tensor in header.values()), default=0)
    except (ValueError, AttributeError, RecursionError):
        return start  # the library will refuse it


def _end_of(tensor: Any) -> int:
    offsets = tensor.get("data_offsets") if isinstance(tensor, dict) else None
    ends = offsets if isinstance(offsets, list) else []
    return max((end for end in ends if type(end) is int), default=0)
