"""History of a platform: calls and items by minute and model, and the work of its pools.

A file of it, CSV or Parquet by its name, has a row for each minute (of `work`: five) and name:

    t_s        Unix time of the beginning
    lasts_s    60, or 300
    kind       calls, items or work
    name       name@version; of work, the pool
    count      calls that were answered, items that arrived; of work, replicas that calls kept busy
    units      sizes of them all, in the model's unit; of work 0
    device_s   device time that they took, s; of items that haven't run, estimated; of work 0
"""

import csv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, fields
from math import isfinite
from pathlib import Path
from random import Random
from typing import Any, Literal, get_args

import click

from ops.simulation.traces import Arrival, TraceError

Kind = Literal["calls", "items", "work"]
_KINDS: tuple[Kind, ...] = get_args(Kind)


@dataclass(frozen=True, slots=True)
class Row:
    """Calls, items or work of one stretch of time."""

    t_s: float
    lasts_s: float
    kind: Kind
    name: str
    count: float
    units: float = 0.0
    device_s: float = 0.0


_COLUMNS = tuple(field.name for field in fields(Row))
_TEXTS = ("kind", "name")


def write(path: Path, rows: Iterable[Row]) -> int:
    """Writes a history; returns the number of rows. Raises click.ClickException."""
    found = sorted(map(astuple, rows))
    try:
        if path.suffix == ".parquet":
            columns = zip(_COLUMNS, zip(*found, strict=True), strict=True) if found else ()
            pyarrow, parquet = _parquet()
            parquet.write_table(pyarrow.table({name: list(its) for name, its in columns}), path)
        else:
            with path.open("w", newline="", encoding="utf-8") as file:
                writer = csv.writer(file)
                writer.writerows([_COLUMNS, *found])
    except OSError as error:
        raise click.ClickException(f"{path} can't be written: {error.strerror}") from error
    return len(found)


def is_history(path: Path) -> bool:
    """Returns True if a file is Parquet, or a CSV with the columns of a history."""
    if path.suffix == ".parquet":
        return True
    try:
        with path.open(encoding="utf-8") as file:
            return set(_COLUMNS) <= set(file.readline().strip().split(","))
    except (OSError, UnicodeDecodeError):
        return False


def read(path: Path) -> list[Row]:
    """Reads a history, by time. Raises TraceError."""
    try:
        rows = sorted(_rows(path), key=lambda row: (row.t_s, row.kind, row.name))
    except OSError as error:
        raise TraceError(f"{path} can't be read: {error.strerror or error}") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise TraceError(f"{path} is no text of lines: {error}") from error
    if not rows:
        raise TraceError(f"{path} has no rows: nothing was called in that time")
    return rows


def arrivals(rows: Sequence[Row], model: str, most: int, seed: int = 0) -> list[Arrival]:
    """Returns the calls of a model, name@version, in the busiest time of a history: so many at
    most, in whole minutes. Within a minute they come at random. Raises TraceError.
    """
    its = [row for row in rows if row.kind == "calls" and row.name == model and row.count]
    if not its:
        named = sorted({row.name for row in rows if row.kind == "calls"})
        raise TraceError(
            f"the history has no calls of {model}; it has {', '.join(named) or 'none'}"
        )
    random, busiest = Random(f"{seed} history"), _busiest(its, most)
    size = {row.t_s: max(1, round(row.units / row.count)) for row in busiest}
    found = sorted(
        (row.t_s + random.random() * row.lasts_s, size[row.t_s])
        for row in busiest
        for _ in range(round(row.count))
    )
    return [(at_s - found[0][0], units) for at_s, units in found]


def _busiest(rows: Sequence[Row], most: int) -> Sequence[Row]:
    """Returns the minutes around the busiest one, with so many calls at most; that one at least."""
    peak = max(range(len(rows)), key=lambda n: rows[n].count)
    first, last, total = peak, peak, rows[peak].count
    while True:
        sides = [n for n in (first - 1, last + 1) if 0 <= n < len(rows)]
        next_to = max(sides, key=lambda n: rows[n].count, default=None)
        if next_to is None or total + rows[next_to].count > most:
            return rows[first : last + 1]
        total += rows[next_to].count
        first, last = min(first, next_to), max(last, next_to)


def by_time(rows: Iterable[Row], kind: Kind) -> dict[float, dict[str, float]]:
    """Returns the counts a second of one kind: by time, then by name."""
    found: dict[float, dict[str, float]] = {}
    for row in rows:
        if row.kind == kind:
            its = found.setdefault(row.t_s, {})
            its[row.name] = its.get(row.name, 0.0) + row.count / row.lasts_s
    return found


def _rows(path: Path) -> Iterator[Row]:
    if path.suffix == ".parquet":
        _, parquet = _parquet()
        try:
            table = parquet.read_table(path).to_pylist()
        except ValueError as error:  # as pyarrow's errors are
            raise TraceError(f"{path} is not Parquet: {error}") from error
        yield from (_row(path, n, record) for n, record in enumerate(table, 1))
        return
    with path.open(newline="", encoding="utf-8") as file:
        lines = csv.DictReader(file)
        for record in lines:
            yield _row(path, lines.line_num, record)


def _row(path: Path, line: int, record: Mapping[str, Any]) -> Row:
    where = f"{path}, line {line}"
    if absent := [name for name in _COLUMNS if record.get(name) is None]:
        raise TraceError(f"{where}: no column {', '.join(absent)}; make it by `millrace history`")
    if record["kind"] not in _KINDS:
        raise TraceError(f"{where}: kind {record['kind']!r} is none of {', '.join(_KINDS)}")
    try:
        numbers = {name: float(record[name]) for name in _COLUMNS if name not in _TEXTS}
    except ValueError as error:
        raise TraceError(f"{where}: {error}") from error
    if not all(isfinite(value) and value >= 0 for value in numbers.values()):
        raise TraceError(f"{where}: a number is below 0 or not finite")
    if not numbers["lasts_s"]:
        raise TraceError(f"{where}: lasts_s must be above 0")
    return Row(kind=record["kind"], name=str(record["name"]), **numbers)


def _parquet() -> Any:
    """Returns pyarrow and its module for Parquet, which are loaded when they are asked for."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise click.ClickException(
            "Parquet needs pyarrow: pip install 'millrace[parquet]'"
        ) from error
    return pyarrow, parquet
