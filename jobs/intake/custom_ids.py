"""Custom ids of one job's items, and which of them an earlier item has.

Hashes find candidates in 12 bytes an item, so many at a time that their ids fit in memory; the
spooled rows tell if the ids are equal.
"""

from array import array
from collections.abc import Iterator
from typing import IO

from jobs.errors import Fault
from jobs.intake import invalid_lines

_MANY = 100_000  # ids of at most 512 characters, held at once


class CustomIds:
    """Ids as they are added, in the order of their items."""

    def __init__(self) -> None:
        self._hashes, self._seqs = array("q"), array("i")

    def __bool__(self) -> bool:
        return len(self._seqs) > 0

    def add(self, seq: int, custom_id: str) -> None:
        """Adds the id of an item."""
        self._hashes.append(hash(custom_id))
        self._seqs.append(seq)

    def duplicates(self, rows: IO[bytes], at_once: int) -> Iterator[tuple[int, int]]:
        """Yields (seq, seq of the first with the same id), by their order among at_once ids.

        rows: the spooled rows of the items; each pass over them looks for at_once different ids.
        """
        if len(self._seqs) < 2:
            return
        import numpy as np

        hashes, seqs = np.asarray(self._hashes), np.asarray(self._seqs)
        in_order = np.argsort(hashes, kind="stable")
        is_repeated = hashes[in_order[1:]] == hashes[in_order[:-1]]
        repeated = hashes[np.sort(in_order[1:][is_repeated])]
        repeated = repeated[np.sort(np.unique(repeated, return_index=True)[1])]
        for start in range(0, len(repeated), at_once):
            is_candidate = np.zeros(int(seqs[-1]) + 1, bool)
            is_candidate[seqs[np.isin(hashes, repeated[start : start + at_once])]] = True
            yield from _equal(rows, is_candidate.tobytes())

    def in_order(self, rows: IO[bytes]) -> Iterator[tuple[int, int]]:
        """Yields all duplicates by seq, each with the first of its id."""
        import numpy as np

        found = self.duplicates(rows, _MANY)
        pairs = array("q", (seq << 32 | first for seq, first in found))
        for pair in np.sort(np.asarray(pairs)):
            yield int(pair) >> 32, int(pair) & 0xFFFFFFFF


def failing_row(row: bytes, fault: Fault, reply: bytes | None) -> bytes:
    """Returns the row of an item that fails, in place of this one, unless it fails already."""
    *kept, _, _, input = row.split(b"\t", 6)
    if input.startswith(invalid_lines.START.encode()):
        return row
    said = b"\\N" if reply is None else _doubled(reply)
    return b"\t".join((*kept, b"\\N", said, _doubled(invalid_lines.as_input(fault)))) + b"\n"


def _doubled(text: bytes) -> bytes:
    return text.replace(b"\\", b"\\\\")


def _equal(rows: IO[bytes], is_candidate: bytes) -> Iterator[tuple[int, int]]:
    """Yields as `CustomIds.duplicates`, among the items whose byte isn't 0."""
    first: dict[bytes, int] = {}
    rows.seek(0)
    for row in rows:
        _, _, seq, custom_id, *_ = row.split(b"\t", 4)
        if int(seq) < len(is_candidate) and is_candidate[int(seq)]:
            before = first.setdefault(custom_id, int(seq))
            if before != int(seq):
                yield int(seq), before
