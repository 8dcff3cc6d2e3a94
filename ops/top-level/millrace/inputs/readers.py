"""Files as items of a job: JSON lines, JSON, texts, CSV and Parquet.

The client, the command line and the jobs whose source the platform reads itself share these
readers, so that a file means the same at each door. An item is a JSON value, or bytes, a line that
is sent as it is; None stands for a line that is too long, and an `Unreadable` for a row that no
item can be made of, while those after it can be read. What ends the reading of a file is raised.
"""

import csv
import json
import re
import sys
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, repeat
from typing import IO, Any, Literal, get_args

from millrace.errors import InputError
from millrace.inputs.columns import id_of, ids, json_values

Format = Literal["jsonl", "text", "csv", "json", "parquet"]
FORMATS: tuple[Format, ...] = get_args(Format)

Items = Iterator[Any]
NOT_FINITE = "NaN and Infinity are no JSON values: leave the input out, or send null there"

_UNITS = {"parquet": ("row", 1), "json": ("element", 0)}
_PARQUET_ROWS = 500  # in memory at a time
_MAX_FIELD_CHARS = 1 << 28  # csv's own bound is 128 KiB
_MOST_SHOWN = 500  # characters of a table's column names in an error
_LONE_RETURN = re.compile(r"(?<=\r)(?!\n|\Z)")  # the end of a line in files of old


@dataclass
class Part:
    """One file of an input, and where its items begin in it."""

    source: str  #: its name
    format: Format
    first: int = 1  #: number of its first item, counted from 1 over all files
    begins: "array[int]" = field(default_factory=lambda: array("Q"))  #: lines of CSV's rows

    def place(self, number: int) -> dict[str, Any]:
        """Returns the place of an item: its line, row of Parquet, or element of a JSON list."""
        at = number - self.first
        if self.format == "csv" and at < len(self.begins):
            return {"line": self.begins[at]}
        unit, start = _UNITS.get(self.format, ("line", 1))
        return {unit: at + start}


class Unreadable(InputError):
    """File that is not what it is said to be, or lacks a column; or one of its rows.

    Attributes:
        code: the reason, such as `not_csv`.
        what: the message without the place.
        custom_id: of the row, where it is known.
    """

    def __init__(self, code: str, what: str, place: str = "", custom_id: str | None = None) -> None:
        super().__init__(f"{place}: {what}" if place else what)
        self.code, self.what, self.custom_id = code, what, custom_id


@dataclass(frozen=True)
class Table:
    """Names of a file and of the columns that its items are made of.

    Without names an item has every column: its `custom_id` and `params`, where there are such, and
    the one other column is its input. With names the columns that none names are left out.
    """

    source: str  #: name of the file in errors
    column: str = ""  #: of the inputs
    id_column: str = ""  #: of the custom_ids

    @property
    def is_named(self) -> bool:
        """True where a column is named."""
        return bool(self.column or self.id_column)

    def fields(self, header: Sequence[str]) -> dict[str, int]:
        """Returns the position of the column of each field of an item: `input`, and `custom_id` and
        `params` where there are such. Raises Unreadable."""
        given = set() if self.is_named else {"custom_id", "params"} & set(header)
        found = {name: self._position(header, name, "column") for name in given}
        if self.id_column:
            found["custom_id"] = self._position(header, self.id_column, "id_column")
        others = [name for name in header if name not in (*given, self.id_column)]
        named = self.column or (others[0] if len(others) == 1 else "")
        return found | {"input": self._position(header, named, "column")}

    def pick(self, value: Any, place: str) -> tuple[Any, str | None]:
        """Returns input and custom_id of an object with columns. Raises Unreadable, which names the
        place."""
        if not isinstance(value, Mapping):
            raise self.unreadable("bad_columns", "no object, which has columns", place)
        if self.column not in value:
            what = f"there is no {self.column!r}" if self.column else "column names none"
            listed = ", ".join(map(str, value))[:_MOST_SHOWN]
            raise self.unreadable("bad_columns", f"{what} among its fields: {listed}", place)
        try:
            custom_id = id_of(value.get(self.id_column))
        except ValueError as error:
            raise self.unreadable("bad_value", f"{self.id_column!r}: {error}", place) from error
        return value[self.column], custom_id

    def unreadable(
        self, code: str, what: str, place: str = "", custom_id: str | None = None
    ) -> Unreadable:
        """Returns an error that names the file, and a place in it. custom_id: of a row."""
        where = f"{self.source}, {place}" if place else self.source
        return Unreadable(code, what, where, custom_id)

    def _position(self, header: Sequence[str], name: str, option: str) -> int:
        count = header.count(name) if name else 0
        if count == 1:
            return header.index(name)
        why = f"has no column {name!r}" if name else "has several columns"
        mend = f"name one with {option}"
        if count:
            why, mend = f"has {count} columns {name!r}", "rename one"
        listed = ", ".join(header)[:_MOST_SHOWN]
        raise Unreadable("bad_columns", f"{self.source} {why}; {mend}: {listed}")


def item_of(input: object, custom_id: str | None = None, params: object = None) -> object:
    """Returns an item; an input alone stands for itself, unless it could be taken for an item."""
    if custom_id is None and params is None:
        return {"input": input} if isinstance(input, dict) else input
    item: dict[str, object] = {} if custom_id is None else {"custom_id": custom_id}
    if params is not None:
        item["params"] = params
    item["input"] = input
    return item


def line_items(
    part: Part, lines: Iterable[bytes | None], table: Table, parse: Callable[[bytes], Any],
    most_bytes: int = sys.maxsize,
) -> Items:  # fmt: skip
    """Returns the items of a file of lines, in whatever format but Parquet; of JSON, lines are its
    pieces, which are put together in memory.

    parse: returns the value of a JSON text; raises ValueError, or RecursionError. most_bytes: of a
    row of CSV. Raises Unreadable, also while the items are read.
    """
    if part.format == "csv":
        return csv_items(lines, table, part.begins, most_bytes)
    if part.format == "text":
        if table.is_named:
            raise table.unreadable("bad_columns", "texts have no columns")
        return text_items(lines, table)
    if part.format == "json":
        try:
            document = parse(b"".join(filter(None, lines)))
        except (ValueError, RecursionError) as error:
            raise table.unreadable("bad_value", f"not valid JSON: {error}") from error
        return elements(document, table)
    lines = _without_last_blanks(lines)  # of each file, whose items are numbered on
    return object_items(lines, table, parse) if table.is_named else lines


def _not_none(item: object) -> object:
    """Returns an item; null as a line, since None stands for one that is too long."""
    return b"null" if item is None else item


def text_items(lines: Iterable[bytes | None], table: Table) -> Items:
    """Yields the text of each line, or why there is none."""
    for number, line in enumerate(lines, 1):
        try:
            text = None if line is None else line.rstrip(b"\r\n").decode()
        except UnicodeDecodeError as error:
            yield table.unreadable("not_utf8", f"not UTF-8: {error.reason}", f"line {number}")
        else:
            yield text


def _without_last_blanks(lines: Iterable[bytes | None]) -> Iterator[bytes | None]:
    blanks = 0
    for line in lines:
        if line is not None and (not line or line.isspace()):
            blanks += 1
            continue
        if blanks:
            yield from repeat(b"\n", blanks)
            blanks = 0
        yield line


def object_items(
    lines: Iterable[bytes | None], table: Table, parse: Callable[[bytes], Any]
) -> Items:
    """Yields the items of lines that are objects with columns, or why there is none. parse: raises
    ValueError, or RecursionError."""
    for number, line in enumerate(lines, 1):
        if line is None or line.isspace():
            yield line
            continue
        try:
            value = parse(line)
        except (ValueError, RecursionError) as error:
            yield table.unreadable("bad_value", f"not valid JSON: {error}", f"line {number}")
        else:
            yield _picked(value, table, f"line {number}")


def elements(document: Any, table: Table) -> Items:
    """Yields the elements of a JSON list as items, or anything else as one."""
    for number, value in enumerate(document if isinstance(document, list) else [document]):
        yield _picked(value, table, f"element {number}") if table.is_named else _not_none(value)


def _picked(value: Any, table: Table, place: str) -> object:
    """Returns the item of an object with columns, or why there is none."""
    try:
        return _not_none(item_of(*table.pick(value, place)))
    except Unreadable as error:
        return error


def csv_items(
    lines: Iterable[bytes | None], table: Table, begins: "array[int] | None" = None,
    most_bytes: int = sys.maxsize,
) -> Items:  # fmt: skip
    """Yields the rows of CSV, whose first one names the columns, or why there is none; blank lines
    are no rows.

    begins: gets the number of the line that each row begins at. most_bytes: of a row. Raises
    Unreadable.
    """
    csv.field_size_limit(_MAX_FIELD_CHARS)
    text = _CsvText(lines, table, most_bytes)
    rows = text.rows()
    header = next(rows, None)
    if isinstance(header, Unreadable):
        raise header
    if not header:
        raise table.unreadable("bad_columns", "its first line must name the columns")
    fields, size = table.fields(header), len(header)
    at_input, at_id, at_params = fields["input"], fields.get("custom_id"), fields.get("params")
    for row in rows:
        if begins is not None:
            begins.append(text.begin)
        if isinstance(row, Unreadable):
            yield row
            continue
        if len(row) != size:
            yield text.fault(f"{len(row)} fields, where the first row names {size}")
            continue
        custom_id = None if at_id is None else row[at_id]
        yield _item(row[at_input], custom_id, None if at_params is None else row[at_params])


class _CsvText(Iterator[str]):
    """Lines of CSV as texts, with their numbers."""

    def __init__(self, lines: Iterable[bytes | None], table: Table, most_bytes: int) -> None:
        self._lines, self._table = iter(lines), table
        self._parts: list[str] = []  # of a line with lone carriage returns, the last part first
        self._number = 0
        self._undecodable: Unreadable | None = None  # the first line of the row that is no UTF-8
        self.begin = 1  #: line that the row begins at
        self._most_bytes = self._left = most_bytes

    def __next__(self) -> str:
        if self._parts:
            self._number += 1
        else:
            self._parts = self._next_lines()
        return self._parts.pop()

    def _next_lines(self) -> list[str]:
        line = next(self._lines)
        self._left -= len(line or b"")
        if line is None or self._left < 0:
            what = "a row is longer than any item may be; is a quote closed?"
            raise self._table.unreadable("not_csv", what, f"line {self.begin}")
        self._number += 1
        text = self._decoded(line)
        return _LONE_RETURN.split(text)[::-1] if "\r" in text.rstrip("\r\n") else [text]

    def _decoded(self, line: bytes) -> str:
        try:
            return line.decode()
        except UnicodeDecodeError as error:
            what, place = f"not UTF-8: {error.reason}", f"line {self._number}"
            fault = self._table.unreadable("not_utf8", what, place)
            self._undecodable = self._undecodable or fault
            return line.decode(errors="replace")  # the row still ends where it does

    def fault(self, what: str) -> Unreadable:
        """Returns why the row that was just read is none. Raises it where the row has several
        lines: a quote that isn't closed may have swallowed rows, and the file ends there."""
        error = self._table.unreadable("not_csv", what, f"line {self.begin}")
        if self._number > self.begin:
            raise error
        return error

    def rows(self) -> Iterator[list[str] | Unreadable]:
        """Yields rows, without blank lines, or why one can't be read; `begin` is set meanwhile.
        Raises Unreadable, as `fault`."""
        rows = csv.reader(self, strict=True)
        while True:
            self.begin, self._left = self._number + 1, self._most_bytes
            self._undecodable = None
            try:
                row = next(rows)
            except StopIteration:
                return
            except csv.Error as error:
                yield self.fault(f"no CSV that can be read: {error}; is a quote closed?")
                continue
            if self._undecodable:
                yield self._undecodable
            elif row:
                yield row


def parquet_items(file: str | IO[bytes], table: Table) -> Items:
    """Yields the rows of Parquet. Raises Unreadable."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        what = "Parquet needs pyarrow: pip install 'millrace[parquet]'"
        raise table.unreadable("no_parquet", what) from error
    try:
        with parquet.ParquetFile(file) as content:
            header: list[str] = content.schema_arrow.names
            names = {field: header[at] for field, at in table.fields(header).items()}
            row = 1
            for batch in content.iter_batches(_PARQUET_ROWS, columns=list(names.values())):
                yield from _rows(table, names, batch, row)
                row += batch.num_rows
    except MemoryError:  # pyarrow's is an ArrowException too
        raise
    except (pyarrow.ArrowException, OSError) as error:
        what = f"no Parquet file, or a damaged one: {error}"
        raise table.unreadable("not_parquet", what) from error


def _rows(table: Table, names: Mapping[str, str], batch: Any, row: int) -> Items:
    """Returns the items of rows, or why there is none, counted from `row`. names: of the columns,
    by field.

    Columns are converted whole; the rows of a batch where that fails, each by itself.
    """
    found: list[str | None] = [None] * batch.num_rows
    params = found
    try:
        if name := names.get("custom_id"):
            found = ids(name, batch.column(name))
        inputs = json_values(names["input"], batch.column(names["input"]))
        if name := names.get("params"):
            params = json_values(name, batch.column(name))
    except ValueError as error:
        if batch.num_rows > 1:
            rows = (batch.slice(n, 1) for n in range(batch.num_rows))
            alone = (_rows(table, names, one, n) for n, one in enumerate(rows, row))
            return chain.from_iterable(alone)
        of = f" (custom_id {found[0]!r})" if found[0] else ""
        return iter([table.unreadable("bad_value", str(error), f"row {row}{of}", found[0])])
    return map(_item, inputs, found, params)


def _item(input: object, custom_id: str | None, params: Any) -> object:
    """Returns the item of a row; an empty custom_id, and empty params, are none."""
    if isinstance(params, str):
        params = _object(params) if params else None
    return item_of(input, custom_id or None, params)


def _object(text: str) -> object:
    """Returns params that are a text of JSON; another text stays one, which is refused as params
    with the place of its item."""
    try:
        value = json.loads(text)
        json.dumps(value, allow_nan=False)
    except (ValueError, RecursionError):
        return text
    return value
