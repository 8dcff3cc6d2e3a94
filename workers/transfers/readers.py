"""The bytes of a source as lines: what is packed is unpacked, and a table's rows become items."""

import csv
import gzip
import tempfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from io import BufferedReader, RawIOBase
from typing import IO, Any, cast

import orjson

from jobs.errors import Untransferable
from jobs.intake.spool import bounded_lines

_CHUNK = 1 << 20
_ROWS = 500  # of a table, in memory at a time
_MOST_TOLD = 500  # characters of what a table calls its columns
_COLUMNS = ("custom_id", "input", "params")


def lines_of(
    source: Mapping[str, Any], raw: IO[bytes], most_line_bytes: int, most_bytes: int
) -> Iterator[bytes | None]:
    """As `jobs.intake.spool.add_lines` takes them. most_bytes: of all of it, unpacked. Raises
    Untransferable where it is not what it is said to be, BlobStoreUnavailable."""
    form = source.get("format", "jsonl")
    with _readable():
        if form == "parquet":
            yield from _parquet(raw, most_bytes)
            return
        if source.get("compression") == "gzip":
            raw = cast(IO[bytes], gzip.GzipFile(fileobj=raw))
        bounded = BufferedReader(_Bounded(raw, most_bytes), _CHUNK)
        lines = bounded_lines(cast(IO[bytes], bounded), most_line_bytes)
        yield from _csv(lines, most_line_bytes) if form == "csv" else lines


@contextmanager
def _readable() -> Iterator[None]:
    try:
        yield
    except EOFError as error:
        raise _unfit("truncated", "the input ends in the middle of its gzip stream") from error
    except (gzip.BadGzipFile, zlib.error) as error:
        message = f'the input is not gzip: {error}; ask for "compression": "none"'
        raise _unfit("not_gzip", message) from error
    except UnicodeDecodeError as error:
        raise _unfit("not_utf8", f"the input is not UTF-8: {error.reason}") from error
    except csv.Error as error:
        raise _unfit("not_csv", f"the input is no CSV that can be read: {error}") from error


def _unfit(code: str, message: str) -> Untransferable:
    return Untransferable(code, f"{message}. Mend it, then retry the job")


class _Bounded(RawIOBase):
    """What has no more than so many bytes: lines that are too long for any item count in full."""

    def __init__(self, raw: IO[bytes], most_bytes: int) -> None:
        self._raw, self._most, self._left = raw, most_bytes, most_bytes

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        chunk = self._raw.read(len(buffer))
        self._left -= len(chunk)
        if self._left < 0:
            raise _too_large(self._most)
        buffer[: len(chunk)] = chunk
        return len(chunk)


def _too_large(most_bytes: int) -> Untransferable:
    return _unfit("too_large", f"the input has more than {most_bytes:,} bytes, unpacked; split it")


def _csv(lines: Iterator[bytes | None], most_line_bytes: int) -> Iterator[bytes]:
    """Its first row names the columns: `input`, and perhaps `custom_id` and `params` (JSON)."""
    csv.field_size_limit(most_line_bytes)
    text = _Text(lines, most_line_bytes)
    rows = csv.reader(text, strict=True)
    columns = next(rows, [])
    _check(columns)
    for number, row in enumerate(rows, start=1):
        text.left = most_line_bytes
        if len(row) != len(columns):
            message = f"row {number} has {len(row)} fields, the first row names {len(columns)}"
            raise _unfit("not_csv", message)
        named = dict(zip(columns, row, strict=True))
        yield _item({name: named[name] for name in columns if named[name] or name == "input"})


class _Text(Iterator[str]):
    """Lines as text. left: the bytes that a row may still have, which may be of several lines."""

    def __init__(self, lines: Iterator[bytes | None], left: int) -> None:
        self._lines, self.left = lines, left
        self._encoding = "utf-8-sig"  # spreadsheets begin theirs with a mark

    def __next__(self) -> str:
        line = next(self._lines)
        self.left -= len(line or b"")
        if line is None or self.left < 0:
            raise _unfit("not_csv", "a row is longer than any item may be")
        text = line.decode(self._encoding)
        self._encoding = "utf-8"
        return text


def _parquet(raw: IO[bytes], most_bytes: int) -> Iterator[bytes]:
    """Its columns are those of CSV; `input` may be a string, a number, a list or a struct."""
    parquet = load_parquet()
    from pyarrow import ArrowException

    with tempfile.TemporaryFile() as file:
        left = most_bytes
        while chunk := raw.read(_CHUNK):
            left -= len(chunk)
            if left < 0:
                raise _too_large(most_bytes)
            file.write(chunk)
        try:
            table = parquet.ParquetFile(file)
            _check(table.schema_arrow.names)
            left = most_bytes  # once more: a value that repeats takes no room in the file
            for batch in table.iter_batches(batch_size=_ROWS):
                for row in batch.to_pylist():
                    item = _item(row)
                    left -= len(item)
                    if left < 0:
                        raise _too_large(most_bytes)
                    yield item
        except (ArrowException, OSError) as error:
            message = f"the input is no Parquet file that can be read: {error}"
            raise _unfit("not_parquet", message) from error


def load_parquet() -> Any:
    """pyarrow.parquet, which is an extra."""
    try:
        from pyarrow import parquet
    except ImportError as error:
        message = "Parquet needs pyarrow here: install millrace[parquet], then retry the job"
        raise Untransferable("no_parquet", message) from error
    return parquet


def _check(columns: list[str]) -> None:
    if "input" not in columns or set(columns) - set(_COLUMNS) or len(set(columns)) < len(columns):
        message = f"the columns are {str(columns)[:_MOST_TOLD]}; they are `input`, and `custom_id` "
        raise _unfit("bad_columns", f"{message}and `params` where there are any")


def _item(row: dict[str, Any]) -> bytes:
    """A row as a line. params: a struct, or JSON; what can't be JSON is for the check to refuse."""
    item = {name: row[name] for name in ("custom_id", "params") if row.get(name) is not None}
    if isinstance(params := item.get("params"), str):
        try:
            orjson.loads(params)
            item["params"] = orjson.Fragment(params)
        except orjson.JSONDecodeError:
            pass  # a string is no object of parameters: a fault that names the item
    try:
        return orjson.dumps(item | {"input": row["input"]})
    except TypeError as error:
        raise _unfit("bad_columns", f"a value of the table can't be JSON: {error}") from error
