"""Writers of results: parts on disk, JSONL or Parquet, closed when they have enough items."""

import gzip
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from hashlib import file_digest
from os import SEEK_END
from typing import IO, Any

from jobs.blobs.lines import one_line
from jobs.dialects.protocol import Dialect, Part
from jobs.errors import Untransferable

_ROWS, _BYTES = 10_000, 32 << 20  # of a table in memory at a time
_GZIP_LEVEL = 6

Row = Mapping[str, Any]
"""One result, as `Dialect.written` takes it."""


@dataclass(frozen=True, slots=True)
class Written:
    """Complete part."""

    part: Part
    number: int  #: among the parts of its kind
    suffix: str  #: of its file name
    items: int
    content: IO[bytes]  #: at its start

    def described(self) -> dict[str, Any]:
        """Entry of the manifest; rewinds the content."""
        size = self.content.seek(0, SEEK_END)
        self.content.seek(0)
        digest = file_digest(self.content, "sha256").hexdigest()  # type: ignore[arg-type]
        self.content.seek(0)
        return {"part": self.part, "items": self.items, "bytes": size, "sha256": digest}


class Parts:
    """Splits the results of one job into parts."""

    def __init__(
        self, target: Mapping[str, Any], dialect: Dialect, unit: str, options: Mapping[str, Any]
    ) -> None:
        self._target, self._dialect, self._unit, self._options = target, dialect, unit, options
        self._max_items = target.get("part_items") or None
        self._open: dict[Part, _Growing] = {}
        self._numbers: dict[Part, int] = {}

    def add(self, row: Row) -> Iterator[Written]:
        """Adds a result; yields the part that it completes, which is closed after that step."""
        if self._target.get("format") == "parquet":
            part: Part = "results"
            self._growing(part).add(row)
        else:
            part, line = self._dialect.result_line(row, self._unit, self._options)
            self._growing(part).add(line)
        if self._open[part].items == self._max_items:
            yield from self._complete(part)

    def finish(self) -> Iterator[Written]:
        """Yields the parts that are still open."""
        for part in sorted(self._open):
            yield from self._complete(part)

    def close(self) -> None:
        """Drops the parts that are still open."""
        unclosed = [one for one in self._open.values() if not one.file.closed]  # uploads close some
        for growing in unclosed:
            with growing.file, suppress(OSError):  # the disk may be full
                growing.finish()  # else garbage collection would write into a closed file
        self._open.clear()

    def _growing(self, part: Part) -> "_Growing":
        if part not in self._open:
            packed = self._target.get("compression") == "gzip"
            kind = _Table if self._target.get("format") == "parquet" else _Lines
            self._open[part] = kind(packed)
        return self._open[part]

    def _complete(self, part: Part) -> Iterator[Written]:
        growing = self._open[part]
        number = self._numbers.get(part, 0)
        self._numbers[part] = number + 1
        growing.finish()
        growing.file.seek(0)
        yield Written(part, number, growing.suffix, growing.items, growing.file)
        # Else `close` does: an exception of whoever takes the part may keep this frame alive.
        growing.file.close()
        del self._open[part]


class _Growing:
    """Part that results are added to: lines or rows."""

    def __init__(self, suffix: str) -> None:
        self.file: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
        self.suffix, self.items = suffix, 0

    def add(self, entry: Any) -> None:
        """Adds a line or a row."""
        self.items += 1

    def finish(self) -> None:
        """Completes the file."""


class _Lines(_Growing):
    """JSONL file."""

    def __init__(self, packed: bool) -> None:
        super().__init__(".jsonl.gz" if packed else ".jsonl")
        # Without time and name, so that another try writes the same bytes.
        self._out: Any = (
            gzip.GzipFile("", "wb", _GZIP_LEVEL, self.file, mtime=0) if packed else self.file
        )

    def add(self, entry: bytes) -> None:
        """Adds a line."""
        self._out.write(one_line(entry) + b"\n")
        self.items += 1

    def finish(self) -> None:
        """Completes the file."""
        if self._out is not self.file:
            self._out.close()


class _Table(_Growing):
    """Parquet file: seq, custom_id, outcome, output, error (both JSON), attempts, units,
    version (of a routed job), truncated (of a text that was cut)."""

    def __init__(self, packed: bool) -> None:
        parquet = _load_parquet()
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
                pyarrow.field("version", pyarrow.string()),
                pyarrow.field("truncated", pyarrow.int32()),
            ]
        )
        super().__init__(".parquet")
        self._out = parquet.ParquetWriter(
            self.file, self._schema, compression="gzip" if packed else "none"
        )
        self._rows: list[dict[str, Any]] = []
        self._bytes = 0

    def add(self, entry: Row) -> None:
        """Adds a row."""
        row = {name: entry[name] for name in self._schema.names}
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
        """Completes the file."""
        self._flush()
        self._out.close()


def _load_parquet() -> Any:
    """Imports pyarrow.parquet. Raises Untransferable where that extra isn't installed."""
    try:
        from pyarrow import parquet
    except ImportError as error:
        message = "Parquet needs pyarrow here: install millrace[parquet], then retry the job"
        raise Untransferable("no_parquet", message) from error
    return parquet
