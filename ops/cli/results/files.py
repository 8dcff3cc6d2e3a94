"""Files of results, as `ops/cli/results/writers.py` writes them, as result lines again."""

import csv
import gzip
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any, cast

import click

from ops.cli.results.writers import SUFFIXES

_ROWS = 1000  # of Parquet, in memory at a time
_MAX_FIELD_CHARS = 1 << 28  # csv's own bound is 128 KiB


class ResultsError(click.ClickException):
    """Reports that a file holds no results."""


def result_lines(path: Path) -> Iterator[bytes]:
    """Yields the results of a file, by its suffix. Raises ResultsError, also while iterating.

    An output of CSV is what it is as JSON, or else a text.
    """
    suffix = Path(path.name.removesuffix(".gz")).suffix.lower()
    format = SUFFIXES.get(suffix)
    if format is None:
        raise ResultsError(f"{path}: {suffix} is none of {', '.join(filter(None, SUFFIXES))}")
    try:
        if format == "jsonl":
            with _opened(path) as file:
                yield from (_checked(json.loads(line)) for line in file if line.strip())
        else:
            rows = _csv_rows(path) if format == "csv" else _parquet_rows(path)
            yield from map(_checked, rows)
    except (ValueError, KeyError, TypeError, OSError, EOFError, csv.Error) as error:
        raise ResultsError(f"{path}: no file of results: {error!r}") from error


def _opened(path: Path) -> IO[bytes]:
    return cast(IO[bytes], (gzip.open if path.name.endswith(".gz") else open)(path, "rb"))


def _checked(result: Mapping[str, Any]) -> bytes:
    """Returns the line of a result. Raises KeyError for something else."""
    names = ("seq", "custom_id", "outcome", "output", "error")
    return json.dumps({name: result[name] for name in names}).encode()


def _csv_rows(path: Path) -> Iterator[dict[str, Any]]:
    csv.field_size_limit(_MAX_FIELD_CHARS)
    with _opened(path) as file:
        lines = (line.decode() for line in file)
        for row in csv.DictReader(lines, strict=True):
            yield {
                "seq": int(row["seq"]),
                "custom_id": row["custom_id"] or None,
                "outcome": row["outcome"],
                "output": _json_or_text(row["output"]) if row["outcome"] == "succeeded" else None,
                "error": json.loads(row["error"]) if row["error"] else None,
            }


def _parquet_rows(path: Path) -> Iterable[dict[str, Any]]:
    from pyarrow import parquet

    with parquet.ParquetFile(path) as file:
        for batch in file.iter_batches(_ROWS):
            for row in batch.to_pylist():
                yield row | {"error": json.loads(row["error"]) if row["error"] else None}


def _json_or_text(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
