"""Readers of sources: JSONL, CSV and Parquet, plain or gzipped, as lines."""

import csv
import gzip
import tempfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from io import BufferedReader, RawIOBase
from shutil import copyfileobj
from typing import IO, Any, cast

import orjson

from jobs.errors import Untransferable
from jobs.intake.free_space import DiskFloor
from jobs.intake.lines import bounded_lines

_CHUNK = 1 << 20
_ROWS = 500  # rows of a table in memory at a time
_MAX_SHOWN = 500  # characters of a table's column names in an error
_COLUMNS = ("custom_id", "input", "params")


def lines_of(
    source: Mapping[str, Any], raw: IO[bytes], max_line_bytes: int, max_bytes: int, floor: DiskFloor
) -> Iterator[bytes | None]:
    """Yields lines as `jobs.intake.spool.add_lines` takes them.

    max_bytes bounds the whole source, unpacked; floor: of the disk that a Parquet file is copied
    to. Raises Untransferable where the source doesn't have the declared format,
    BlobStoreUnavailable, InsufficientStorage.
    """
    form = source.get("format", "jsonl")
    with _format_errors():
        if form == "parquet":
            yield from _parquet(raw, max_bytes, floor)
            return
        if source.get("compression") == "gzip":
            raw = cast(IO[bytes], gzip.GzipFile(fileobj=raw))
        bounded = BufferedReader(Observed(raw, _Budget(max_bytes).spend), _CHUNK)
        lines = bounded_lines(cast(IO[bytes], bounded), max_line_bytes)
        yield from _csv(lines, max_line_bytes) if form == "csv" else lines


@contextmanager
def _format_errors() -> Iterator[None]:
    try:
        yield
    except EOFError as error:
        raise _invalid("truncated", "the input ends in the middle of its gzip stream") from error
    except (gzip.BadGzipFile, zlib.error) as error:
        message = f'the input is not gzip: {error}; ask for "compression": "none"'
        raise _invalid("not_gzip", message) from error
    except UnicodeDecodeError as error:
        raise _invalid("not_utf8", f"the input is not UTF-8: {error.reason}") from error
    except csv.Error as error:
        raise _invalid("not_csv", f"the input is no CSV that can be read: {error}") from error


def _invalid(code: str, message: str) -> Untransferable:
    return Untransferable(code, f"{message}. Mend it, then retry the job")


class Observed(RawIOBase):
    """Bytes of a source. `observe` gets each chunk that is read, an empty one at the end, and may
    raise; closing this closes the source."""

    def __init__(self, raw: IO[bytes], observe: Callable[[bytes], None]) -> None:
        self._raw, self._observe = raw, observe

    def readable(self) -> bool:
        """Returns True."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Reads the next bytes. Raises what `observe` raises."""
        chunk = self._raw.read(len(buffer))
        self._observe(chunk)
        buffer[: len(chunk)] = chunk
        return len(chunk)

    def close(self) -> None:
        """Closes the source."""
        self._raw.close()
        super().close()


class _Budget:
    """Bytes that a source may have; lines that are too long for an item count in full."""

    def __init__(self, max_bytes: int) -> None:
        self._max = self._left = max_bytes

    def spend(self, chunk: bytes) -> None:
        """Counts bytes. Raises Untransferable past the bound."""
        self._left -= len(chunk)
        if self._left < 0:
            message = f"the input has more than {self._max:,} bytes, unpacked; split it"
            raise _invalid("too_large", message)


def _csv(lines: Iterator[bytes | None], max_line_bytes: int) -> Iterator[bytes]:
    """Yields rows as lines; the first row names the columns: `input`, `custom_id`, `params`."""
    csv.field_size_limit(max_line_bytes)
    text = _Text(lines, max_line_bytes)
    reader = csv.reader(text, strict=True)
    rows = _filled(reader, text, max_line_bytes)
    columns = next(rows, [])
    _check(columns)
    for row in rows:
        if len(row) != len(columns):
            message = f"line {reader.line_num} ends a row of {len(row)} fields"
            raise _invalid("not_csv", f"{message}, the first row names {len(columns)}")
        named = dict(zip(columns, row, strict=True))
        yield _item({name: named[name] for name in columns if named[name] or name == "input"})


def _filled(rows: Iterator[list[str]], text: "_Text", max_bytes: int) -> Iterator[list[str]]:
    """Yields rows without blank lines, each of so many bytes at most."""
    for row in rows:
        text.left = max_bytes
        if row:
            yield row


class _Text(Iterator[str]):
    """Decodes lines."""

    def __init__(self, lines: Iterator[bytes | None], left: int) -> None:
        self._lines = lines
        self.left = left  # bytes that the row may still have; it may span several lines

    def __next__(self) -> str:
        line = next(self._lines)
        self.left -= len(line or b"")
        if line is None or self.left < 0:
            raise _invalid("not_csv", "a row is longer than any item may be")
        return line.decode()


def _parquet(raw: IO[bytes], max_bytes: int, floor: DiskFloor) -> Iterator[bytes]:
    """Yields rows as lines; columns as in CSV, `input` may be of any type with a form in JSON."""
    parquet = load_parquet()
    from pyarrow import ArrowException

    with tempfile.TemporaryFile() as file:
        source = _Budget(max_bytes)

        def observe(chunk: bytes) -> None:
            """Counts a chunk that is about to be copied."""
            source.spend(chunk)
            floor.check(len(chunk))

        copyfileobj(Observed(raw, observe), file, _CHUNK)
        try:
            table = parquet.ParquetFile(file)
            _check(table.schema_arrow.names)
            budget = _Budget(max_bytes)  # counted again: a repeated value takes no room in the file
            first_row = 1
            for batch in table.iter_batches(batch_size=_ROWS):
                for row in _rows(batch, first_row):
                    item = _item(row)
                    budget.spend(item)
                    yield item
                first_row += batch.num_rows
        except MemoryError:  # pyarrow's is an ArrowException too
            raise
        except (ArrowException, OSError) as error:
            message = f"the input is no Parquet file that can be read: {error}"
            raise _invalid("not_parquet", message) from error


def _rows(batch: Any, first_row: int) -> Iterator[dict[str, Any]]:
    from millrace.columns import ids, json_values  # the client reads files by the same rules

    names: list[str] = batch.schema.names
    try:
        columns = [
            (ids if name == "custom_id" else json_values)(name, batch.column(name), first_row)
            for name in names
        ]
    except ValueError as error:
        raise _invalid("bad_value", f"the input can't be items: {error}") from error
    return (dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True))


def load_parquet() -> Any:
    """Imports pyarrow.parquet. Raises Untransferable where that extra isn't installed."""
    try:
        from pyarrow import parquet
    except ImportError as error:
        message = "Parquet needs pyarrow here: install millrace[parquet], then retry the job"
        raise Untransferable("no_parquet", message) from error
    return parquet


def _check(columns: list[str]) -> None:
    if "input" not in columns or set(columns) - set(_COLUMNS) or len(set(columns)) < len(columns):
        message = f"the columns are {str(columns)[:_MAX_SHOWN]}; they are `input`, and `custom_id` "
        raise _invalid("bad_columns", f"{message}and `params` where there are any")


def _item(row: dict[str, Any]) -> bytes:
    """Renders a row as a line. params may be a struct or JSON; other text is refused by intake."""
    item = {name: row[name] for name in ("custom_id", "params") if row.get(name) is not None}
    if isinstance(params := item.get("params"), str):
        try:
            orjson.loads(params)
            item["params"] = orjson.Fragment(params)
        except orjson.JSONDecodeError:
            pass  # intake refuses the string, naming the item
    try:
        return orjson.dumps(item | {"input": row["input"]})
    except TypeError as error:
        raise _invalid("bad_columns", f"a value of the table can't be JSON: {error}") from error
