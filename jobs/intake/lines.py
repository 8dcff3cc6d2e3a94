"""Lines of a file of items, each in bounded memory."""

from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator
from itertools import repeat
from typing import IO

from jobs.errors import Fault

Line = bytes | Fault | None
"""None stands for a line that is too long, a fault for a row that no item can be made of."""


def bounded_lines(file: IO[bytes], most_bytes: int) -> Iterator[bytes | None]:
    """Yields the lines of a file; None for each that is longer. A byte order mark at the file's
    beginning is left out, as editors and spreadsheets write it."""
    line = file.readline(len(BOM_UTF8) + most_bytes + 1).removeprefix(BOM_UTF8)
    while line:
        yield line if len(line) <= most_bytes else None
        while len(line) > most_bytes and not line.endswith(b"\n"):
            line = file.readline(most_bytes + 1)
        line = file.readline(most_bytes + 1)


def without_last_blanks(lines: Iterable[Line]) -> Iterator[Line]:
    """Yields lines without the blank ones at the end, as an editor may leave them there."""
    blank = 0
    for line in lines:
        if isinstance(line, bytes) and (not line or line.isspace()):
            blank += 1
            continue
        if blank:
            yield from repeat(b"\n", blank)
            blank = 0
        yield line
