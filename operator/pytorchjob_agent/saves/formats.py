"""Whether a file of a known format is whole, by its first and last bytes. Pure.

A process that ends during a save leaves a file that is closed and never changes again. Its format often shows it.
"""

HEAD_BYTES, TAIL_BYTES = 16, 65_536 + 22
_ZIP, _ZIP_END = b"PK\x03\x04", b"PK\x05\x06"


def is_whole(path: str, size: int, head: bytes, tail: bytes) -> bool:
    """Return False if the file is cut: an archive of torch.save without its directory, or safetensors' half a header.

    `head` and `tail` are the first HEAD_BYTES and the last TAIL_BYTES. True for every other format.
    """
    if head.startswith(_ZIP):
        return _ZIP_END in tail
    if path.endswith(".safetensors"):
        return size >= 8 and 8 + int.from_bytes(head[:8], "little") <= size
    return size > 0 or not path.endswith((".pt", ".pth", ".ckpt", ".bin", ".distcp"))
