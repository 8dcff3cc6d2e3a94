"""Reading of a job's source: its files or objects, plain or in gzip, as lines of bounded size."""

import gzip
import json
import tempfile
import zlib
from codecs import BOM_UTF8
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from io import BufferedReader, RawIOBase
from shutil import copyfileobj
from typing import IO, Any, cast

import orjson

from jobs.errors import Fault, MillraceError, Untransferable
from jobs.intake.free_space import DiskFloor
from jobs.intake.lines import Line, bounded_lines
from jobs.intake.validation import parse_json
from millrace.inputs.readers import Part, Table, Unreadable, line_items, parquet_items

_CHUNK = 1 << 20


@dataclass(frozen=True)
class SourceFile:
    """One file of a source."""

    part: Part
    table: Table
    is_gzip: bool
    open: Callable[[], AbstractContextManager[IO[bytes]]]


@dataclass(frozen=True)
class Bounds:
    """Bounds of a source."""

    line_bytes: int  #: of a line or a row that is an item
    document_bytes: int  #: of a JSON document, or of a row with other columns, which is in memory
    total_bytes: int  #: of all files, unpacked
    floor: DiskFloor  #: of the disk that a Parquet file is copied to


class SourceLines:
    """Lines of a source as `jobs.intake.feeding.add_lines` takes them.

    strict: a row that no item can be made of ends the reading; otherwise its fault stands for it.
    Raises Untransferable where a file doesn't have the declared format, BlobStoreUnavailable,
    InsufficientStorage.
    """

    def __init__(self, files: Iterable[SourceFile], bounds: Bounds, strict: bool = True) -> None:
        self._files, self._bounds, self._strict = files, bounds, strict
        self._budget = _Budget(bounds.total_bytes)
        # Rows are counted again: a repeated value takes no room in a file of Parquet.
        self._unpacked = _Budget(bounds.total_bytes)
        self._read: list[SourceFile] = []

    def __iter__(self) -> Iterator[Line]:
        """Yields the lines of all files, one after the other."""
        first = 1
        for file in self._files:
            file.part.first = first
            self._read.append(file)
            with _format_errors(), file.open() as raw:
                for item in self._items(file, raw):
                    yield item if item is None or isinstance(item, bytes) else self._line(item)
                    first += 1

    def place(self, number: int) -> dict[str, Any]:
        """Returns the place of an item: its file, if that has a name, and line, row or element."""
        its = next(file.part for file in reversed(self._read) if file.part.first <= number)
        return ({"file": its.source} if its.source else {}) | its.place(number)

    def _line(self, item: object) -> bytes | Fault:
        """Returns the line of an item, or the fault of a row. Raises Unreadable."""
        if not isinstance(item, Unreadable):
            return _encoded(item)
        if self._strict:
            raise item
        return Fault((), item.code, item.what, custom_id=item.custom_id)

    def _items(self, file: SourceFile, raw: IO[bytes]) -> Iterator[Any]:
        if file.part.format == "parquet":
            return self._rows(file, raw)
        if file.is_gzip:
            raw = cast(IO[bytes], gzip.GzipFile(fileobj=raw))
        content = cast(IO[bytes], BufferedReader(Observed(raw, self._budget.spend), _CHUNK))
        most_bytes = self._bounds.line_bytes
        if file.table.is_named:  # a row may have other columns, longer than any item
            most_bytes = max(most_bytes, self._bounds.document_bytes)
        is_document = file.part.format == "json"
        lines = self._document(content) if is_document else bounded_lines(content, most_bytes)
        return line_items(file.part, lines, file.table, _parsed, most_bytes)

    def _document(self, content: IO[bytes]) -> Iterator[bytes | None]:
        most = self._bounds.document_bytes
        document = content.read(len(BOM_UTF8) + most + 1).removeprefix(BOM_UTF8)
        if len(document) > most:
            message = f"a JSON document has {most:,} bytes at most: write JSON lines"
            raise _invalid("too_large", message)
        yield document

    def _rows(self, file: SourceFile, raw: IO[bytes]) -> Iterator[bytes | Unreadable]:
        """Yields the rows of Parquet, which needs a file that it can seek in."""
        with tempfile.TemporaryFile() as copy:

            def observe(chunk: bytes) -> None:
                """Counts a chunk that is about to be copied."""
                self._budget.spend(chunk)
                self._bounds.floor.check(len(chunk))

            copyfileobj(Observed(raw, observe), copy, _CHUNK)
            for item in parquet_items(copy, file.table):
                if isinstance(item, Unreadable):
                    yield item
                    continue
                line = _encoded(item)
                self._unpacked.spend(line)
                yield line


@contextmanager
def _format_errors() -> Iterator[None]:
    try:
        yield
    except EOFError as error:
        raise _invalid("truncated", "the input ends in the middle of its gzip stream") from error
    except (gzip.BadGzipFile, zlib.error) as error:
        message = f'the input is not gzip: {error}; ask for "compression": "none"'
        raise _invalid("not_gzip", message) from error
    except Unreadable as error:
        raise _invalid(error.code, str(error)) from error


def _invalid(code: str, message: str) -> Untransferable:
    return Untransferable(code, f"{message}. Mend it, then retry the job")


def _parsed(text: bytes) -> Any:
    """Parses JSON. Raises ValueError."""
    try:
        return parse_json(text)
    except MillraceError as error:
        raise ValueError(error.detail) from error


def _encoded(item: object) -> bytes:
    try:
        return orjson.dumps(item)
    except TypeError:  # a large integer or half a surrogate pair: the intake names its item
        return json.dumps(item).encode()


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
