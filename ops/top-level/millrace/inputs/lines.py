"""Inputs of a job as lines of NDJSON: of lists, iterators, tables and files, none held in memory.

Lines can be read again, where a broken connection has them sent again: those of an iterator are
written to a temporary file on their way.
"""

import json
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from dataclasses import dataclass
from itertools import repeat, starmap
from typing import Any

from millrace.errors import InputError
from millrace.inputs.columns import id_of
from millrace.inputs.files import Input
from millrace.inputs.readers import NOT_FINITE, Table

_IN_MEMORY_BYTES = 1 << 20  # of an iterator's lines; what is longer is on disk


@dataclass(frozen=True, slots=True)
class Item:
    """Input with its own id or parameters."""

    input: Any
    custom_id: str | None = None
    params: Mapping[str, Any] | None = None  #: in place of those of the job

    def as_json(self) -> dict[str, Any]:
        """Item as the api takes it."""
        fields: dict[str, Any] = {"input": self.input}
        if self.custom_id is not None:
            fields["custom_id"] = self.custom_id
        if self.params is not None:
            fields["params"] = self.params
        return fields


def lines_of(inputs: Any, column: str = "", id_column: str = "") -> Iterable[bytes]:
    """Returns the lines of a job, which are read as they are sent.

    inputs: a list or any iterable of texts, JSON values, Items or whole lines as bytes; a table
    with columns (pandas, polars, or a mapping of lists); or the path of a file, or of a folder of
    them. column, id_column: those of the inputs and of their custom_ids, in a table, CSV, Parquet,
    or objects of JSON. Raises InputError, also while the lines are read.
    """
    if isinstance(inputs, str | os.PathLike):
        return _file(os.fspath(inputs), column, id_column)
    if isinstance(inputs, bytes):
        raise InputError("give a list of inputs, or a path; these are bytes")
    if hasattr(inputs, "columns") or isinstance(inputs, Mapping):
        return _table(inputs, column, id_column)
    if not isinstance(inputs, Iterable):
        raise InputError(f"give a list of inputs, a table or a path, not a {type(inputs).__name__}")
    if column or id_column:
        table = Table("the inputs", column, id_column)
        if isinstance(inputs, Iterator):
            return Replayable(encode(_picked(inputs, table)))
        return _Picked(inputs, table)
    if isinstance(inputs, Iterator):
        return Replayable(encode(inputs))
    return _Encoded(inputs)


class _Encoded:
    """Lines of what can be iterated again."""

    def __init__(self, inputs: Iterable[Any]) -> None:
        self._inputs = inputs

    def __iter__(self) -> Iterator[bytes]:
        return encode(self._inputs)


class _Picked:
    """Lines of columns of objects."""

    def __init__(self, objects: Iterable[Any], table: Table) -> None:
        self._objects, self._table = objects, table

    def __iter__(self) -> Iterator[bytes]:
        return encode(_picked(self._objects, self._table))


def _picked(objects: Iterable[Any], table: Table) -> Iterator[Item]:
    for number, value in enumerate(objects):
        yield Item(*table.pick(value, f"input {number}"))


class _Rows:
    """Lines of a column, with custom_ids of another one."""

    def __init__(self, inputs: Iterable[Any], ids: Iterable[Any] | None) -> None:
        self._inputs, self._ids = inputs, ids

    def __iter__(self) -> Iterator[bytes]:
        ids = repeat(None) if self._ids is None else self._ids
        pairs = zip(self._inputs, ids, strict=self._ids is not None)
        return encode(starmap(_row, enumerate(pairs)))


def _row(number: int, pair: tuple[Any, Any]) -> Item:
    """Returns the item of an input and the value of its id. Raises InputError."""
    try:
        return Item(pair[0], id_of(pair[1]))
    except ValueError as error:
        raise InputError(f"row {number} of the column of ids: {error}") from error


class Replayable:
    """Lines of an iterator, which are kept in a temporary file as they are read.

    An error that the iterator ended in is raised each time that the lines are read.
    """

    def __init__(self, lines: Iterator[bytes]) -> None:
        self._rest = lines
        self._file = tempfile.SpooledTemporaryFile(_IN_MEMORY_BYTES)  # noqa: SIM115
        self._failure: Exception | None = None

    def __iter__(self) -> Iterator[bytes]:
        """Yields the lines that were read before, then the rest."""
        self._file.seek(0)
        # Not `yield from` the file, which closes it where the lines are left before their end.
        yield from iter(self._file.readline, b"")
        if self._failure:
            raise self._failure
        try:
            for line in self._rest:
                self._file.write(line)
                yield line
        except Exception as error:
            self._failure = error
            raise

    def __del__(self) -> None:
        self._file.close()


def _file(path: str, column: str, id_column: str) -> Iterable[bytes]:
    if not os.path.exists(path):
        raise InputError(f"there is no file {path!r}; give a list for inputs that are no file")
    return Input(path, column=column, id_column=id_column)


def _table(table: Any, column: str, id_column: str) -> Iterable[bytes]:
    """Lines of a data frame, by its columns' names alone: no library is imported for it."""
    names = list(table.columns if hasattr(table, "columns") else table)
    if not column and len(names) == 1:
        column = names[0]
    for name, option in ((column, "column"), (id_column, "id_column")):
        if name not in names and (name or option == "column"):
            what = f"no column {name!r}" if name else "several columns"
            listed = ", ".join(map(str, names))
            raise InputError(f"the table has {what}; name one with {option}: {listed}")
    columns = {name: table[name] for name in (column, id_column) if name}
    sizes = {name: _size(name, values) for name, values in columns.items()}
    if len(set(sizes.values())) > 1:
        counts = ", ".join(f"{name!r} has {size:,}" for name, size in sizes.items())
        raise InputError(f"the columns have different numbers of rows: {counts}")
    return _Rows(columns[column], columns.get(id_column))


def _size(name: str, values: Any) -> int:
    """Returns the rows of a column. Raises InputError for an iterator, which can be read once."""
    if not isinstance(values, Sized):
        kind = type(values).__name__
        raise InputError(f"the column {name!r} is a {kind}, which has no length; give a list")
    return len(values)


def encode(inputs: Iterable[Any]) -> Iterator[bytes]:
    """Yields the line of each input. Raises InputError, which says which one can't be sent, or why
    there are no more."""
    to_json = json.JSONEncoder(allow_nan=False, default=_plain).encode
    number = -1
    try:
        for number, value in enumerate(inputs):
            yield _line(value, number, to_json)
    except InputError:
        raise
    except Exception as error:  # of a generator, say
        why = f"{type(error).__name__}: {error}"
        raise InputError(f"the inputs broke off after {number + 1:,}: {why}") from error


def _line(value: Any, number: int, to_json: Callable[[Any], str]) -> bytes:
    if isinstance(value, bytes):
        return value if value.endswith(b"\n") else value + b"\n"
    try:
        line = to_json(value if isinstance(value, str) else _wrapped(value))
    except (TypeError, ValueError, RecursionError) as error:
        why = NOT_FINITE if "JSON compliant" in str(error) else error
        raise InputError(f"input {number} can't be sent as JSON: {why}") from error
    return line.encode() + b"\n"


def _wrapped(value: Any) -> Any:
    """Item of an input; a dictionary with an `input` and no foreign field is one already."""
    if isinstance(value, Item):
        return value.as_json()
    if isinstance(value, dict) and "input" in value and value.keys() <= Item.__annotations__.keys():
        return value
    return {"input": value}


def _plain(value: Any) -> Any:
    """Python's value of a number or an array of NumPy and the like, which none is imported for."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"a {type(value).__name__} is no JSON value")
