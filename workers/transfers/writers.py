"""Results as parts: files on disk that grow line by line, and are closed when they have enough."""

import gzip
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from hashlib import file_digest
from os import SEEK_END
from typing import IO, Any, Protocol

from jobs.dialects.protocol import Dialect, Part
from workers.transfers.readers import load_parquet

_ROWS, _BYTES = 10_000, 32 << 20  # of a table, in memory at a time
_LEVEL = 6

Row = Mapping[str, Any]
"""Of one result, as `Dialect.written` takes it."""


@dataclass(frozen=True, slots=True)
class Written:
    """A part that is complete: its content at its start, its number among those of its kind."""

    part: Part
    number: int
    suffix: str
    items: int
    content: IO[bytes]

    def described(self) -> dict[str, Any]:
        """What the manifest says of it; its content is at its start again."""
        size = self.content.seek(0, SEEK_END)
        self.content.seek(0)
        digest = file_digest(self.content, "sha256").hexdigest()  # type: ignore[arg-type]
        self.content.seek(0)
        return {"part": self.part, "items": self.items, "bytes": size, "sha256": digest}


class Parts:
    """The parts of one job. target: the job's; words: what makes a line of a row."""

    def __init__(
        self, target: Mapping[str, Any], words: Dialect, unit: str, asked: Mapping[str, Any]
    ) -> None:
        self._target, self._words, self._unit, self._asked = target, words, unit, asked
        self._most = target.get("part_items") or None
        self._open: dict[Part, _Growing] = {}
        self._numbers: dict[Part, int] = {}

    def add(self, row: Row) -> Iterator[Written]:
        """The part that is complete by it, if one is. It is closed once the caller goes on."""
        if self._target.get("format") == "parquet":
            part: Part = "results"
            self._growing(part).add(row)
        else:
            part, line = self._words.result_line(row, self._unit, self._asked)
            self._growing(part).add(line)
        if self._open[part].items == self._most:
            yield from self._complete(part)

    def finish(self) -> Iterator[Written]:
        """Those that are still open."""
        for part in sorted(self._open):
            yield from self._complete(part)

    def close(self) -> None:
        """Drops those that are still open."""
        for growing in self._open.values():
            with growing.file, suppress(OSError):  # of a full disk
                growing.finish()  # else it would write into a closed file when it is collected
        self._open.clear()

    def _growing(self, part: Part) -> "_Growing":
        if part not in self._open:
            self._open[part] = _growing(self._target)
        return self._open[part]

    def _complete(self, part: Part) -> Iterator[Written]:
        growing = self._open.pop(part)
        number = self._numbers.get(part, 0)
        self._numbers[part] = number + 1
        with growing.file as file:
            growing.finish()
            file.seek(0)
            yield Written(part, number, growing.suffix, growing.items, file)


class _Growing(Protocol):
    """A part that more is added to: lines or rows."""

    file: IO[bytes]
    suffix: str
    items: int

    def add(self, what: Any) -> None: ...

    def finish(self) -> None: ...


def _growing(target: Mapping[str, Any]) -> _Growing:
    packed = target.get("compression") == "gzip"
    return _Table(packed) if target.get("format") == "parquet" else _Lines(packed)


class _Lines:
    """JSONL."""

    def __init__(self, packed: bool) -> None:
        self.file: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
        self.suffix, self.items = ".jsonl.gz" if packed else ".jsonl", 0
        # Without a time and a name in it: what is written again is the same, byte by byte.
        self._out: Any = (
            gzip.GzipFile("", "wb", _LEVEL, self.file, mtime=0) if packed else self.file
        )

    def add(self, what: bytes) -> None:
        self._out.write(what + b"\n")
        self.items += 1

    def finish(self) -> None:
        if self._out is not self.file:
            self._out.close()


class _Table:
    """Parquet: seq, custom_id, outcome, output, error (both JSON), attempts, units."""

    def __init__(self, packed: bool) -> None:
        parquet = load_parquet()
        import pyarrow

        self._pyarrow = pyarrow
        self._schema = pyarrow.schema(
            [
                pyarrow.field("seq", pyarrow.int32(), nullable=False),
                pyarrow.field("custom_id", pyarrow.string()),
                pyarrow.field("outcome", pyarrow.string(), nullable=False),
                pyarrow.field("output", pyarrow.string()),
                pyarrow.field("error", pyarrow.string()),
                pyarrow.field("attempts", pyarrow.int32(), nullable=False),
                pyarrow.field("units", pyarrow.int32(), nullable=False),
            ]
        )
        self.file: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
        self.suffix, self.items = ".parquet", 0
        self._out = parquet.ParquetWriter(
            self.file, self._schema, compression="gzip" if packed else "none"
        )
        self._rows: list[dict[str, Any]] = []
        self._bytes = 0

    def add(self, what: Row) -> None:
        row = {name: what[name] for name in self._schema.names}
        for name in ("output", "error"):
            if isinstance(row[name], bytes):
                row[name] = row[name].decode()
            self._bytes += len(row[name] or "")
        self._rows.append(row)
        self.items += 1
        if len(self._rows) >= _ROWS or self._bytes > _BYTES:
            self._flush()

    def _flush(self) -> None:
        if self._rows:
            self._out.write_table(self._pyarrow.Table.from_pylist(self._rows, self._schema))
        self._rows, self._bytes = [], 0

    def finish(self) -> None:
        self._flush()
        self._out.close()
