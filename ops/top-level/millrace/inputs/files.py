"""Files on this machine, folders of them and standard input, as lines of a job."""

import codecs
import gzip
import json
import sys
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path, PurePath
from typing import IO, Any, cast

from millrace.errors import InputError
from millrace.inputs.readers import (
    NOT_FINITE,
    Format,
    Items,
    Part,
    Table,
    Unreadable,
    line_items,
    parquet_items,
)

STDIN = "-"
_SUFFIXES: dict[str, Format] = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".csv": "csv",
    ".json": "json",
    ".parquet": "parquet",
}


def format_of(source: str) -> Format:
    """Returns the format that a name stands for, by the suffix, without .gz."""
    if source == STDIN:
        return "jsonl"
    return _SUFFIXES.get(Path(source.removesuffix(".gz")).suffix.lower(), "text")


def is_part(name: str) -> bool:
    """Returns False for what writers of tables leave beside the parts, such as `_SUCCESS` and
    `_temporary/…`. name: path below the folder."""
    return not any(part.startswith(("_", ".")) for part in PurePath(name).parts)


@dataclass
class Input:
    """Items in files, in those of a folder in the order of their names, or on standard input."""

    source: str | Sequence[str]  #: path, several of them, or "-"
    format: Format | None = None  #: of each file; None: by its suffix
    column: str = ""  #: of the inputs, in tables and objects; "": the only one
    id_column: str = ""  #: of the custom_ids
    head: Sequence[bytes] = ()  #: lines of standard input that were read already
    _read: list[Part] = field(default_factory=list, repr=False, compare=False)

    def lines(self) -> Iterable[bytes]:
        """Lines of the job: an iterator for standard input; a file is read anew each time.

        Raises InputError, also while iterating.
        """
        return iter(self) if self.source == STDIN else self

    def __iter__(self) -> Iterator[bytes]:
        """Yields the lines of the job."""
        self._read.clear()
        first = 1
        for path in self._paths():
            part = Part(path, self.format or format_of(path), first)
            self._read.append(part)
            for item in self._items(part):
                yield _line(item, part, first)
                first += 1

    def place(self, number: int) -> dict[str, Any]:
        """Returns the place of the item that is a line of the job, counted from 1: file, and line,
        row or element."""
        its = next((part for part in reversed(self._read) if part.first <= number), None)
        return {"file": its.source} | its.place(number) if its else {"line": number}

    def _paths(self) -> Iterator[str]:
        for source in [self.source] if isinstance(self.source, str) else self.source:
            is_folder = source != STDIN and Path(source).is_dir()
            yield from _parts_of(Path(source)) if is_folder else (source,)

    def _items(self, part: Part) -> Items:
        table = Table(part.source, self.column, self.id_column)
        if part.format == "parquet":
            if part.source == STDIN or part.source.endswith(".gz"):
                what = "Parquet is read from a file, without gzip around it"
                raise InputError(f"{part.source}: {what}")
            yield from parquet_items(part.source, table)
            return
        with _opened(part.source) as file:
            lines = _without_mark(chain(self.head, file))
            try:
                yield from line_items(part, lines, table, json.loads)
            except (gzip.BadGzipFile, zlib.error, EOFError) as error:
                what = f"no gzip file, or a damaged one: {error}"
                raise InputError(f"{part.source}: {what}") from error


def _parts_of(folder: Path) -> list[str]:
    """Returns the files of a folder that aren't empty. Raises InputError where there is none."""
    found = {str(path.relative_to(folder)): path for path in folder.rglob("*")}
    paths = [
        str(path)
        for name, path in sorted(found.items())
        if is_part(name) and path.is_file() and path.stat().st_size
    ]
    if not paths:
        raise InputError(f"{folder}: no file in this folder has items")
    return paths


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


def _line(item: Any, part: Part, number: int) -> bytes:
    if isinstance(item, bytes):
        return item.rstrip(b"\r\n") + b"\n"
    if isinstance(item, Unreadable):  # no line of a job stands for it
        raise item
    try:
        return json.dumps(item, allow_nan=False).encode() + b"\n"
    except ValueError as error:
        [(unit, at)] = part.place(number).items()
        where = f"{unit} {at}"
        raise InputError(f"{part.source}, {where}: {NOT_FINITE}") from error
