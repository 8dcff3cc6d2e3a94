"""Ranges of blobs in files."""

import os


def write_at(descriptor: int, chunk: bytes | memoryview, at: int) -> None:
    """Writes all of a chunk into a file, from a position on."""
    view = memoryview(chunk)
    while view:
        written = os.pwrite(descriptor, view, at)
        view, at = view[written:], at + written
