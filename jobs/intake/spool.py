"""Intake of one job's items, one at a time and in constant memory.

Each is checked, cut into slices and spooled as a row for COPY. The database is not touched before
all of them are checked.
"""

import sys
import tempfile
from array import array
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from math import ceil
from typing import IO, Any
from uuid import UUID

from jobs.blobs.payloads import Payloads
from jobs.errors import Fault, Invalid, StorageFull, TooLarge, TooManyItems
from jobs.identity import Limit
from jobs.intake import invalid_lines, validation
from jobs.intake.custom_ids import CustomIds, failing_row
from jobs.intake.free_space import LOOK_BYTES, DiskFloor
from jobs.intake.validation import Item
from jobs.limits import Bound, most_items, most_stored
from jobs.models.model import Model

MAX_FAULTS = 1000  # faults that a response lists; the next one ends the intake
_SPOOL_IN_MEMORY = 1 << 20
_SLICE_BYTES = 4 << 20  # most bytes of a slice's inputs and their parameters
_TOGETHER = 256  # items that are taken at once where all are plain texts
_TOGETHER_BYTES = 1 << 20  # of their lines
_ROW_BYTES = 32  # of a text's row, without its prefix and the text
_ESCAPES = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"})

Where = Callable[[int], tuple[tuple[str | int, ...], int | None]]
ReplyTo = Callable[[Fault], bytes | None]


class Intake:
    """Items of one job, before they are stored.

    Feed it with `add`; `finish` raises Invalid with every fault, or leaves `rows` (COPY text, at
    its start), `total`, `input_bytes` (all that is stored of the items), `bounds` (the start of
    each slice, then the total) and `inputs` (of each slice, how many an item stands for on average,
    rounded up).

    The first item, byte or fault beyond a limit ends it: every method that adds raises Invalid,
    TooLarge or StorageFull then, or InsufficientStorage, and reads no further. max_items: of a job;
    max_bytes: of `rows`; floor: of the disks that rows and payloads go to; limits: of the tenant
    and its key. place: of the item that is a line, in the file that it comes from.
    """

    def __init__(
        self,
        job_id: UUID,
        tenant: str,
        model: Model,
        *,
        strict: bool,
        max_items: int,
        max_bytes: int = sys.maxsize,
        floor: DiskFloor | None = None,
        limits: Sequence[Limit] = (),
        payloads: Payloads | None = None,
        place: Callable[[int], Mapping[str, Any]] = lambda line: {"line": line},
    ) -> None:
        self.rows: IO[bytes] = tempfile.SpooledTemporaryFile(_SPOOL_IN_MEMORY)  # noqa: SIM115
        self.total = 0
        self.bounds, self.inputs = array("i", [0]), array("i")
        self.faults: list[Fault] = []
        self._kept = False
        self.model, self._strict = model, strict
        self._max_items, self._max_bytes = max_items, max_bytes
        self._item_bound = most_items(limits, model.name)
        self._stored_bound = most_stored(limits, model.name)
        self._most_items = min(max_items, self._item_bound.most if self._item_bound else max_items)
        self._most_stored = self._stored_bound.most if self._stored_bound else sys.maxsize
        self.input_bytes = self._spooled_bytes = self._stashed_bytes = 0
        self._floor, self._next_look = floor or DiskFloor((), 0), LOOK_BYTES
        self._place = place
        self._prefix = b"%b\t%b\t" % (str(job_id).encode(), _escape(tenant))
        payloads = payloads or Payloads()
        self._over_bytes, self._stash = payloads.over_bytes, payloads.stash("in", job_id)
        self._slice_items = model.limits.slice_items
        self._slice_bytes = self._slice_inputs = 0
        self._ids = CustomIds()

    def add(
        self,
        value: Any,
        loc: tuple[str | int, ...],
        line: int | None = None,
        reply: bytes | None = None,
    ) -> None:
        """Adds one item; `finish` reports its faults.

        reply: JSON that its dialect needs for the result line, where items of a job differ.
        """
        item = validation.check(value, loc, line, self.model, self._strict)
        if isinstance(item, list):
            its = validation.id_of(value)
            if its is not None:
                item = [replace(fault, custom_id=its) for fault in item]
            self.refuse(*item, custom_id=None if self._strict else its)
        else:
            self.take(item, reply)

    def texts_at_once(self) -> tuple[int, float]:
        """Returns how many texts to take at once, and bytes of them: the last of so many may be the
        first beyond a limit."""
        if self.faults:
            return 1, 0
        most = int(min(_TOGETHER, self._most_items - self.total + 1))
        spooled_bytes = self._spooled_bytes + most * (len(self._prefix) + _ROW_BYTES)
        left = self._most_stored - self.input_bytes, self._max_bytes - spooled_bytes
        return most, min(_TOGETHER_BYTES, *left)

    def add_texts(self, values: Sequence[Any]) -> bool:
        """Adds items that are plain texts, all at once. Returns False, and adds none, where one may
        have a fault or pass a bound: each needs `add` then."""
        raws = validation.plain_texts(values, self.model, self._strict)
        if raws is None:
            return False
        sizes = list(map(len, raws))
        size = sum(sizes)
        if b"\\" in b"".join(raws):
            raws = [raw.replace(b"\\", b"\\\\") for raw in raws]
        prefix = self._prefix
        rows = b"".join(
            [
                b"%b%d\t\\N\t\\N\t\\N\t%b\n" % (prefix, seq, raw)
                for seq, raw in enumerate(raws, self.total)
            ]
        )
        spooled_bytes = self._spooled_bytes + len(rows)
        if (
            self.total + len(raws) > self._most_items
            or self.input_bytes + size > self._most_stored
            or spooled_bytes > self._max_bytes
            or spooled_bytes + self._stashed_bytes > self._next_look
            or self._slice_bytes + size > _SLICE_BYTES
            or max(sizes) > self._over_bytes
        ):
            return False
        self.rows.write(rows)
        self._spooled_bytes = spooled_bytes
        self.input_bytes += size
        self._cut_texts(sizes)
        return True

    def refuse(
        self, *faults: Fault, custom_id: str | None = None, reply: bytes | None = None
    ) -> None:
        """Counts an item that can't be stored; `finish` reports its faults. Unless the job is
        strict, one that fails with the first of them is stored in its place. custom_id: its id,
        that of no other item; reply: as for `add`."""
        if not self._strict:
            failing = invalid_lines.as_input(self._located(faults[0]))
            self.take(Item(custom_id, failing, None), reply)
            return
        seq = self._next()
        if custom_id is not None:
            self._ids.add(seq, custom_id)
            self.rows.write(b"%b%d\t%b\t\n" % (self._prefix, seq, _escape(custom_id)))
        self.fault(*faults)

    def _next(self) -> int:
        """Returns the seq of the next item."""
        seq = self.total
        if seq >= self._most_items:
            self._refuse_more_items()
        self.total += 1
        return seq

    def _refuse_more_items(self) -> None:
        if self._item_bound and self.total >= self._item_bound.most:
            raise TooManyItems(self._item_bound)
        message = f"a job has at most {self._max_items} items"
        self.faults = [*self.faults[: MAX_FAULTS - 1], Fault(("items",), "too_many", message)]
        raise self._invalid(message)

    def take(self, item: Item, reply: bytes | None = None) -> None:
        """Adds one item that was checked."""
        seq = self._next()
        size = len(item.input) + len(item.params or b"")
        self.input_bytes += size + len(reply or b"")
        custom_id = b"\\N"
        if item.custom_id is not None:
            self.input_bytes += len(item.custom_id.encode())
            self._ids.add(seq, item.custom_id)
            custom_id = _escape(item.custom_id)
        params = b"\\N" if item.params is None else item.params.replace(b"\\", b"\\\\")
        if self.input_bytes > self._most_stored:
            assert self._stored_bound
            raise _too_many_bytes(self._stored_bound)
        if len(item.input) <= self._over_bytes:
            text = item.input.replace(b"\\", b"\\\\")
        else:  # with a fault nothing will be stored
            self._stashed_bytes += len(item.input)
            text = b"" if self.faults else self._stash.add(seq, item.input).encode()
        said = b"\\N" if reply is None else reply.replace(b"\\", b"\\\\")
        row = b"%b%d\t%b\t%b\t%b\t%b\n" % (self._prefix, seq, custom_id, params, said, text)
        self._count_spooled(len(row))
        if self._spooled_bytes + self._stashed_bytes > self._next_look:
            self._next_look += LOOK_BYTES
            self._floor.check()
        self.rows.write(row)
        self._cut(seq, size, item.inputs)

    def _count_spooled(self, more: int) -> None:
        self._spooled_bytes += more
        if self._spooled_bytes > self._max_bytes:
            message = f"the items have more than {self._max_bytes:,} bytes, spooled; split them"
            raise TooLarge(f"{message} into several jobs; nothing was stored")

    def _cut(self, seq: int, size: int, inputs: int) -> None:
        over = (
            self._slice_bytes + size > _SLICE_BYTES
            or self._slice_inputs + inputs > self._slice_items
        )
        if over and seq > self.bounds[-1]:
            self._close_slice(seq)
        self._slice_bytes += size
        self._slice_inputs += inputs

    def _cut_texts(self, sizes: Sequence[int]) -> None:
        """Adds items of one input to slices; the bytes of all of them fit the one that is open."""
        done = 0
        while done < len(sizes):
            if self._slice_inputs >= self._slice_items:
                self._close_slice(self.total)
            its = sizes[done : done + self._slice_items - self._slice_inputs]
            self._slice_inputs += len(its)
            self._slice_bytes += sum(its)
            self.total += len(its)
            done += len(its)

    def _close_slice(self, stop: int) -> None:
        self.inputs.append(ceil(self._slice_inputs / (stop - self.bounds[-1])))
        self.bounds.append(stop)
        self._slice_bytes = self._slice_inputs = 0

    @property
    def custom_ids(self) -> bool:
        """True where any item has one."""
        return bool(self._ids)

    def fault(self, *faults: Fault) -> None:
        """Adds faults that `finish` reports; raises Invalid where they are more than it lists."""
        self.faults += map(self._located, faults)
        if len(self.faults) > MAX_FAULTS:
            del self.faults[MAX_FAULTS:]
            raise self._invalid(f"at least {MAX_FAULTS} faults")

    def finish(self, where: Where, reply_to: ReplyTo = lambda fault: None) -> None:
        """Raises Invalid with all faults, if any. Unless the job is strict, items whose id an
        earlier one has fail. where: (loc, line) of an item by its seq; reply_to: reply of an item
        with a fault, as for `add`."""
        if self.total == 0:
            self.fault(Fault(("items",), "empty", "a job needs at least one item"))
        if self._strict or self.faults:
            self._report_duplicates(where)
        else:
            self._fail_duplicates(where, reply_to)
        if count := len(self.faults):
            raise self._invalid("1 fault" if count == 1 else f"{count} faults")
        self._stash.finish()
        self._close_slice(self.total)
        self.rows.seek(0)

    def _report_duplicates(self, where: Where) -> None:
        reported = {fault.line for fault in self.faults if fault.line}
        for seq, first in self._ids.duplicates(self.rows, MAX_FAULTS):
            fault = self._duplicate(where, seq, first)
            if fault.line not in reported:
                self.fault(fault)

    def _fail_duplicates(self, where: Where, reply_to: ReplyTo) -> None:
        """Replaces the rows of items whose id an earlier one has by those that fail."""
        duplicates = self._ids.in_order(self.rows)
        pair = next(duplicates, None)
        if pair is None:
            return
        with closing(self.rows) as rows:
            self.rows = tempfile.SpooledTemporaryFile(_SPOOL_IN_MEMORY)  # noqa: SIM115
            rows.seek(0)
            for seq, row in enumerate(rows):
                if pair and seq == pair[0]:
                    fault, pair = self._duplicate(where, *pair), next(duplicates, None)
                    failing = failing_row(row, self._located(fault), reply_to(fault))
                    self._count_spooled(len(failing) - len(row))
                    row = failing
                self.rows.write(row)

    def _duplicate(self, where: Where, seq: int, first: int) -> Fault:
        (loc, line), (_, first_line) = where(seq), where(first)
        its = {"item": first} if first_line is None else self._place(first_line)
        message = f"custom_id is already that of {invalid_lines.in_words(its)}"
        return Fault((*loc, "custom_id"), "duplicate_custom_id", message, line, first=its)

    def _located(self, fault: Fault) -> Fault:
        return replace(fault, place=self._place(fault.line)) if fault.line else fault

    def _invalid(self, what: str) -> Invalid:
        """Returns the error, its faults in the order of their lines."""
        self.faults.sort(key=lambda fault: fault.line or 0)
        return Invalid(f"{what}, nothing was stored", faults=self.faults)

    def keep(self) -> None:
        """Keeps the payloads at `close`: from the commit on the job may be in the database."""
        self._kept = True

    def close(self) -> None:
        """Deletes the spooled rows, and the payloads unless `keep` was called."""
        with suppress(OSError):  # the disk may be full
            self.rows.close()
        if not self._kept:
            self._stash.undo()


def _too_many_bytes(bound: Bound) -> StorageFull:
    message = f"{bound.whose} may store {bound.most:.0f} bytes ({bound.name}), and the job has more"
    return StorageFull(f"{message}; nothing was stored", bound=bound, left=int(bound.most))


def _escape(text: str) -> bytes:
    return text.translate(_ESCAPES).encode()
