"""Files that `millrace` writes results to: JSON lines, CSV or Parquet, as they stream in.

A file appears once it is complete: it is written under another name, then renamed.
"""

import csv
import gzip
import io
import json
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO, Any, Literal, cast, get_args

import click

Format = Literal["jsonl", "csv", "parquet"]
FORMATS: tuple[Format, ...] = get_args(Format)
SUFFIXES: dict[str, Format] = {
    ".jsonl": "jsonl", ".ndjson": "jsonl", "": "jsonl", ".csv": "csv", ".parquet": "parquet"
}  # fmt: skip

COLUMNS = ("seq", "custom_id", "outcome", "output", "error", "attempts", "units")
"""Of CSV and Parquet. error: as JSON."""

_ROWS = 1000  # that become columns at once
_GROUP_BYTES = 32 << 20


class OutputError(click.ClickException):
    """Reports that results can't be written there, or in that format."""


@dataclass(frozen=True)
class Target:
    """A file, or standard output where path is None."""

    path: Path | None
    format: Format
    gzipped: bool = False

    @classmethod
    def of(cls, path: Path | None, format: Format | None = None) -> "Target":
        """format: without one, by the path's suffix. Raises OutputError for what is sure to fail
        later."""
        name = path.name if path else ""
        gzipped, suffix = name.endswith(".gz"), Path(name.removesuffix(".gz")).suffix.lower()
        found = format or SUFFIXES.get(suffix)
        if found is None:
            known = ", ".join(filter(None, SUFFIXES))
            raise OutputError(f"{path}: {suffix} is none of {known}; --format names one")
        if found == "parquet":
            _pyarrow()
            if gzipped:
                raise OutputError(f"{path}: Parquet is compressed inside; leave .gz away")
            if path is None and sys.stdout.isatty():
                raise OutputError("Parquet is nothing for a terminal; name a file with -o")
        if path is not None and not path.absolute().parent.is_dir():
            raise OutputError(f"{path}: there is no folder {path.parent}")
        return cls(path, found, gzipped)

    def write(self, lines: Iterable[bytes]) -> int:
        """Result lines, without their ends; returns how many there were. Raises OutputError, and
        BrokenPipeError where nobody reads any more."""
        counted = _Counted(lines)
        try:
            with _opened(self.path) as raw, _compressed(raw, self.gzipped) as file:
                _WRITERS[self.format](counted, file)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise OutputError(f"{self.path or 'standard output'}: {error.strerror}") from error
        return counted.count


class _Counted:
    def __init__(self, lines: Iterable[bytes]) -> None:
        self._lines, self.count = lines, 0

    def __iter__(self) -> Iterator[bytes]:
        for line in self._lines:
            self.count += 1
            yield line


@contextmanager
def _opened(path: Path | None) -> Iterator[IO[bytes]]:
    if path is None:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    place = path.resolve()  # of a link, what it leads to
    if place.exists() and not place.is_file():  # a pipe, a device: nothing to put into its place
        with place.open("wb") as file:
            yield file
        return
    beside = place.with_name(f".{place.name}.{os.getpid()}.part")
    try:
        with beside.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        beside.replace(place)
    except BaseException:
        with suppress(FileNotFoundError):
            beside.unlink()
        raise


@contextmanager
def _compressed(raw: IO[bytes], gzipped: bool) -> Iterator[IO[bytes]]:
    if not gzipped:
        yield raw
        return
    # Without the name and the time: the same results give the same bytes.
    with gzip.GzipFile("", "wb", compresslevel=6, fileobj=raw, mtime=0) as file:
        yield cast(IO[bytes], file)


def _row(line: bytes) -> list[Any]:
    """The values of COLUMNS; the output as it is."""
    result = json.loads(line)
    [units] = result.pop("usage").values()
    result["error"] = _as_text(result["error"])
    return [{**result, "units": units}[name] for name in COLUMNS]


_SEQ, _OUTPUT = COLUMNS.index("seq"), COLUMNS.index("output")


def _as_text(value: Any) -> str | None:
    """A text as it is, all else as JSON."""
    return value if value is None or isinstance(value, str) else json.dumps(value)


def _write_jsonl(lines: Iterable[bytes], file: IO[bytes]) -> None:
    for line in lines:
        file.write(line + b"\n")


def _write_csv(lines: Iterable[bytes], file: IO[bytes]) -> None:
    text = io.TextIOWrapper(file, "utf-8", newline="")
    writer = csv.writer(text, lineterminator="\n")
    try:
        writer.writerow(COLUMNS)
        for line in lines:
            row = _row(line)
            row[_OUTPUT] = _as_text(row[_OUTPUT])
            writer.writerow(row)
        text.flush()
    finally:
        with suppress(OSError):
            text.detach()  # the file is closed by who opened it


def _pyarrow() -> Any:
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise OutputError("Parquet needs pyarrow: pip install 'millrace[parquet]'") from error
    return pyarrow


def _write_parquet(lines: Iterable[bytes], file: IO[bytes]) -> None:
    """Row groups of about _GROUP_BYTES. The first rows decide what the outputs are."""
    arrow, rest = _pyarrow(), iter(lines)
    rows = [_row(line) for line in islice(rest, _ROWS)]
    schema = _schema(arrow, [row[_OUTPUT] for row in rows])
    with arrow.parquet.ParquetWriter(file, schema, compression="zstd") as writer:
        group: list[Any] = []
        while rows:
            group.append(_batch(arrow, schema, rows))
            if sum(batch.nbytes for batch in group) >= _GROUP_BYTES:
                writer.write_table(arrow.Table.from_batches(group, schema))
                group = []
            rows = [_row(line) for line in islice(rest, _ROWS)]
        if group:
            writer.write_table(arrow.Table.from_batches(group, schema))


def _schema(arrow: Any, outputs: Sequence[Any]) -> Any:
    numbers = dict.fromkeys(("seq", "attempts", "units"), arrow.int32())
    types = dict.fromkeys(COLUMNS, arrow.string()) | numbers
    found = [output for output in outputs if output is not None]
    deep = _depth(found[0]) if found else None
    if deep is not None and all(_depth(output) == deep for output in found):
        types["output"] = arrow.float64()
        for _ in range(deep):
            types["output"] = arrow.list_(types["output"])
    return arrow.schema(list(types.items()))


def _depth(value: Any) -> int | None:
    """0 for a number, 1 for a list of numbers, and so on; None for anything else."""
    deep = 0
    while isinstance(value, list) and value:
        value, deep = value[0], deep + 1
    return deep if isinstance(value, int | float) and not isinstance(value, bool) else None


def _batch(arrow: Any, schema: Any, rows: list[list[Any]]) -> Any:
    outputs = [row[_OUTPUT] for row in rows]
    if arrow.types.is_string(schema.field("output").type):
        outputs = [_as_text(output) for output in outputs]
    columns = list(zip(*rows, strict=True))
    columns[_OUTPUT] = tuple(outputs)
    try:
        arrays = [
            arrow.array(column, field.type) for column, field in zip(columns, schema, strict=True)
        ]
    except (arrow.ArrowInvalid, arrow.ArrowTypeError) as error:
        between = f"between seq {rows[0][_SEQ]} and {rows[-1][_SEQ]}"
        wanted = schema.field("output").type
        raise OutputError(
            f"an output {between} is no {wanted}, as the first ones are: {error}; "
            "write .jsonl or .csv"
        ) from error
    return arrow.record_batch(arrays, schema=schema)


_WRITERS = {"jsonl": _write_jsonl, "csv": _write_csv, "parquet": _write_parquet}
