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
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from itertools import chain, count, islice
from pathlib import Path
from typing import IO, Any, Literal, cast, get_args

import click

Format = Literal["jsonl", "csv", "parquet"]
FORMATS: tuple[Format, ...] = get_args(Format)
SUFFIXES: dict[str, Format] = {
    ".jsonl": "jsonl", ".ndjson": "jsonl", "": "jsonl", ".csv": "csv", ".parquet": "parquet"
}  # fmt: skip

#: Columns of CSV and Parquet; errors are JSON.
COLUMNS = ("seq", "custom_id", "outcome", "output", "error", "attempts", "units")
_OF_ROUTED_JOBS = ("version",)

_ROWS = 1000  # rows that become columns at once
_GROUP_BYTES = 32 << 20


class OutputError(click.ClickException):
    """Reports that results can't be written there, or in that format."""


@dataclass(frozen=True)
class Target:
    """File, or standard output where path is None."""

    path: Path | None
    format: Format
    gzipped: bool = False

    @classmethod
    def of(cls, path: Path | None, format: Format | None = None) -> "Target":
        """Checks a target. format: default: by the path's suffix. Raises OutputError."""
        name = path.name if path else ""
        gzipped, suffix = name.endswith(".gz"), Path(name.removesuffix(".gz")).suffix.lower()
        format = format or SUFFIXES.get(suffix)
        if format is None:
            known = ", ".join(filter(None, SUFFIXES))
            raise OutputError(f"{path}: {suffix} is none of {known}; --format names one")
        if format == "parquet":
            _pyarrow()
            if gzipped:
                raise OutputError(f"{path}: Parquet is compressed inside; leave .gz away")
            if path is None and sys.stdout.isatty():
                raise OutputError("Parquet is nothing for a terminal; name a file with -o")
        if path is not None and not path.absolute().parent.is_dir():
            raise OutputError(f"{path}: there is no folder {path.parent}")
        return cls(path, format, gzipped)

    def write(self, lines: Iterable[bytes]) -> int:
        """Writes result lines, which have no line ends; returns their number.

        Raises OutputError, and BrokenPipeError where the reader has left.
        """
        number = count()
        counted = (line for line, _ in zip(lines, number, strict=False))
        try:
            with _opened(self.path) as raw, _compressed(raw, self.gzipped) as file:
                _WRITERS[self.format](counted, file)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise OutputError(f"{self.path or 'standard output'}: {error.strerror}") from error
        return next(number)


@contextmanager
def _opened(path: Path | None) -> Iterator[IO[bytes]]:
    if path is None:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    path = path.resolve()  # the target of a link
    if path.exists() and not path.is_file():  # a pipe or a device, which can't be replaced
        with path.open("wb") as file:
            yield file
        return
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with part.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def _compressed(raw: IO[bytes], gzipped: bool) -> AbstractContextManager[IO[bytes]]:
    if not gzipped:
        return nullcontext(raw)
    # Without the name and the time: the same results give the same bytes.
    return cast(IO[bytes], gzip.GzipFile("", "wb", compresslevel=6, fileobj=raw, mtime=0))


def _row(line: bytes) -> list[Any]:
    """Values of COLUMNS, and of a routed job the version; the output unchanged."""
    result = json.loads(line)
    usage = result.pop("usage")
    usage.pop("truncated", None)  # JSON lines have it
    [result["units"]] = usage.values()
    result["error"] = _as_text(result["error"])
    return [result[name] for name in (*COLUMNS, *_OF_ROUTED_JOBS) if name in result]


def _names(rows: Sequence[list[Any]]) -> Sequence[str]:
    """Names of the columns of rows, or of no row."""
    return (*COLUMNS, *_OF_ROUTED_JOBS)[: len(rows[0]) if rows else len(COLUMNS)]


_SEQ, _OUTPUT = COLUMNS.index("seq"), COLUMNS.index("output")


def _as_text(value: Any) -> str | None:
    """Texts unchanged, all else as JSON."""
    return value if value is None or isinstance(value, str) else json.dumps(value)


def _write_jsonl(lines: Iterable[bytes], file: IO[bytes]) -> None:
    for line in lines:
        file.write(line + b"\n")


def _write_csv(lines: Iterable[bytes], file: IO[bytes]) -> None:
    text = io.TextIOWrapper(file, "utf-8", newline="")
    writer = csv.writer(text, lineterminator="\n")
    try:
        rows = map(_row, lines)
        first = list(islice(rows, 1))
        writer.writerow(_names(first))
        for row in chain(first, rows):
            row[_OUTPUT] = _as_text(row[_OUTPUT])
            writer.writerow(row)
        text.flush()
    finally:
        with suppress(OSError):
            text.detach()  # _opened closes the file


def _pyarrow() -> Any:
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise OutputError("Parquet needs pyarrow: pip install 'millrace[parquet]'") from error
    return pyarrow


def _write_parquet(lines: Iterable[bytes], file: IO[bytes]) -> None:
    """Writes row groups of about _GROUP_BYTES; the first rows give the type of outputs."""
    arrow, rest = _pyarrow(), iter(lines)
    rows = [_row(line) for line in islice(rest, _ROWS)]
    schema = _schema(arrow, rows)
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


def _schema(arrow: Any, rows: Sequence[list[Any]]) -> Any:
    numbers = dict.fromkeys(("seq", "attempts", "units"), arrow.int32())
    types = dict.fromkeys(_names(rows), arrow.string()) | numbers
    depths = {_depth(row[_OUTPUT]) for row in rows if row[_OUTPUT] is not None}
    if len(depths) == 1 and (depth := depths.pop()) is not None:
        types["output"] = arrow.float64()
        for _ in range(depth):
            types["output"] = arrow.list_(types["output"])
    return arrow.schema(list(types.items()))


def _depth(value: Any) -> int | None:
    """Returns 0 for a number, 1 for a list of numbers, and so on; None for anything else."""
    depth = 0
    while isinstance(value, list) and value:
        value, depth = value[0], depth + 1
    return depth if isinstance(value, int | float) and not isinstance(value, bool) else None


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
        span = f"between seq {rows[0][_SEQ]} and {rows[-1][_SEQ]}"
        kind = schema.field("output").type
        raise OutputError(
            f"an output {span} is no {kind}, as the first ones are: {error}; write .jsonl or .csv"
        ) from error
    return arrow.record_batch(arrays, schema=schema)


_WRITERS = {"jsonl": _write_jsonl, "csv": _write_csv, "parquet": _write_parquet}
