"""Files of inputs as lines of a job: JSON lines, JSON, texts or CSV, plain or in gzip; Parquet."""

import codecs
import csv
import gzip
import io
import json
import sys
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import IO, Any, Literal, cast, get_args

from millrace.columns import id_of, ids, json_values
from millrace.errors import InputError

Format = Literal["jsonl", "text", "csv", "json", "parquet"]
FORMATS: tuple[Format, ...] = get_args(Format)

TABLES = ("csv", "parquet")
"""Formats with columns."""

STDIN = "-"
_SUFFIXES: dict[str, Format] = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".csv": "csv",
    ".json": "json",
    ".parquet": "parquet",
}
NOT_FINITE = "NaN and Infinity are no JSON values: leave the input out, or send null there"

_PARQUET_ROWS = 1000  # in memory at a time
_MAX_FIELD_CHARS = 1 << 28  # csv's own bound is 128 KiB


@dataclass(frozen=True)
class Input:
    """Items in a file, or on standard input."""

    source: str  #: path, or "-"
    format: Format
    column: str = ""  #: input column of a table; "": its only one
    id_column: str = ""  #: custom_id column of a table
    head: Sequence[bytes] = ()  #: lines of standard input that were read already

    def lines(self) -> Iterable[bytes]:
        """Lines of the job: an iterator for standard input; a file is read anew each time.

        Raises InputError, also while iterating.
        """
        return iter(self) if self.source == STDIN else self

    def __iter__(self) -> Iterator[bytes]:
        """Yields the lines of the job."""
        if self.format == "parquet":
            yield from _parquet_lines(self)
            return
        with _opened(self.source) as file:
            lines = _without_mark(chain(self.head, file))
            try:
                if self.format == "csv":
                    yield from _csv_lines(file, self)
                elif self.format == "text":
                    yield from _texts(lines, self.source)
                elif self.format == "json":
                    yield from _elements(lines, self.source)
                else:
                    yield from (line.rstrip(b"\r\n") + b"\n" for line in lines)
            except (gzip.BadGzipFile, zlib.error, EOFError) as error:
                raise InputError(
                    f"{self.source}: no gzip file, or a damaged one: {error}"
                ) from error


def format_of(source: str) -> Format:
    """Format by the suffix, without .gz. Raises InputError for one that can't be read."""
    if source == STDIN:
        return "jsonl"
    return _SUFFIXES.get(Path(source.removesuffix(".gz")).suffix.lower(), "text")


@contextmanager
def _opened(source: str) -> Iterator[IO[bytes]]:
    if source == STDIN:
        yield sys.stdin.buffer
        return
    with (gzip.open if source.endswith(".gz") else open)(source, "rb") as file:
        yield cast(IO[bytes], file)


def _without_mark(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Yields lines without the byte order mark that an editor may have put before the first."""
    left = iter(lines)
    yield from (line.removeprefix(codecs.BOM_UTF8) for line in islice(left, 1))
    yield from left


def _texts(lines: Iterable[bytes], source: str) -> Iterator[bytes]:
    for number, line in enumerate(lines, 1):
        try:
            yield _line(line.rstrip(b"\r\n").decode())
        except UnicodeDecodeError as error:
            raise InputError(f"{source}, line {number}: not UTF-8: {error.reason}") from error


def _elements(lines: Iterable[bytes], source: str) -> Iterator[bytes]:
    """Yields the elements of a list, or anything else as one item; the document is in memory."""
    try:
        document = json.loads(b"".join(lines))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{source}: not valid JSON: {error}") from error
    for n, item in enumerate(document if isinstance(document, list) else [document]):
        try:
            yield _line(item)
        except ValueError as error:
            raise InputError(f"{source}, element {n}: {NOT_FINITE}") from error


def _csv_lines(file: IO[bytes], table: Input) -> Iterator[bytes]:
    csv.field_size_limit(_MAX_FIELD_CHARS)
    # A file from a spreadsheet may begin with a byte order mark.
    text = io.TextIOWrapper(file, "utf-8-sig", newline="")
    rows = csv.reader(text, strict=True)
    try:
        header = next(filter(None, rows), None)
        if not header:
            raise InputError(f"{table.source}: its first line must name the columns")
        named = table.column or (header[0] if len(header) == 1 else "")
        column = _position(table, header, named, "column")
        its_id = _position(table, header, table.id_column, "id_column") if table.id_column else None
        for row in filter(None, rows):  # without blank lines
            if len(row) != len(header):
                counts = f"{len(row)} fields, where the header has {len(header)}"
                raise InputError(f"{table.source}, line {rows.line_num}: {counts}")
            yield _line(_item(row[column], None if its_id is None else id_of(row[its_id])))
    except csv.Error as error:
        raise InputError(f"{table.source}, line {rows.line_num}: {error}") from error
    except UnicodeDecodeError as error:
        where = f"{table.source}, after line {rows.line_num}"
        raise InputError(f"{where}: not UTF-8: {error.reason}") from error
    finally:
        text.detach()  # _opened closes the file


def _parquet_lines(table: Input) -> Iterator[bytes]:
    if table.source == STDIN or table.source.endswith(".gz"):
        raise InputError(f"{table.source}: Parquet is read from a file, without gzip around it")
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise InputError("Parquet needs pyarrow: pip install 'millrace[parquet]'") from error
    try:
        with parquet.ParquetFile(table.source) as file:
            names, row = _named_columns(table, file.schema_arrow.names), 1
            for batch in file.iter_batches(_PARQUET_ROWS, columns=names):
                yield from map(_line, map(_item, *_values(table, names, batch, row)))
                row += batch.num_rows
    except (pyarrow.ArrowException, OSError) as error:
        raise InputError(f"{table.source}: no Parquet file, or a damaged one: {error}") from error


def _values(table: Input, names: list[str], batch: Any, row: int) -> list[list[Any]]:
    """Returns the values of the column of inputs and, where it is asked for, that of ids."""
    try:
        values = [json_values(names[0], batch.column(names[0]), row)]
        return values + [ids(name, batch.column(name), row) for name in names[1:]]
    except ValueError as error:
        raise InputError(f"{table.source}, {error}") from error


def _named_columns(table: Input, header: list[str]) -> list[str]:
    """Returns the names of the column of inputs and, where it is asked for, that of ids."""
    named = table.column or (header[0] if len(header) == 1 else "")
    names = [header[_position(table, header, named, "column")]]
    if table.id_column:
        names.append(header[_position(table, header, table.id_column, "id_column")])
    return names


def _item(input: object, id: str | None = None) -> object:
    """Returns an item; an object would be taken for one itself."""
    if id is None:
        return {"input": input} if isinstance(input, dict) else input
    return {"custom_id": id, "input": input}


def _position(table: Input, header: list[str], name: str, option: str) -> int:
    if name in header:
        return header.index(name)
    columns = ", ".join(header)
    why = f"has no column {name!r}" if name else "has several columns"
    raise InputError(f"{table.source} {why}; name one with {option}: {columns}")


def _line(item: object) -> bytes:
    return json.dumps(item, allow_nan=False).encode() + b"\n"
