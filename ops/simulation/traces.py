"""Files of arrivals: traces of a service, or plain seconds."""

import csv
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from math import isfinite
from pathlib import Path
from random import Random

import click

from jobs.models.model import Model

#: (seconds since the first, size).
Arrival = tuple[float, int]

_PLAIN = "a plain file has the seconds of one arrival a line"
#: Column of the time -> optional column of the size.
_COLUMNS = {"t_s": "in_tokens", "TIMESTAMP": "ContextTokens"}


class TraceError(click.ClickException):
    """Reports an invalid trace."""


def read(path: Path) -> list[Arrival]:
    """Reads arrivals in order; the first one is at 0. Raises TraceError.

    Columns: t_s (seconds) or TIMESTAMP (a date and time), with in_tokens or ContextTokens; or
    seconds alone.
    """
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = [(n, row) for n, row in enumerate(csv.reader(file), 1) if any(row)]
    except OSError as error:
        raise TraceError(f"{path} can't be read: {error.strerror}") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise TraceError(f"{path} is no text of lines: {error}") from error
    if not rows:
        raise TraceError(f"{path} is empty; {_PLAIN}")
    arrivals = sorted(_arrivals(path, rows))
    if not arrivals:
        raise TraceError(f"{path} has a heading and no arrivals")
    first_s = arrivals[0][0]
    return [(at_s - first_s, size) for at_s, size in arrivals]


def rate_per_s(arrivals: Sequence[Arrival]) -> float:
    """Mean rate; 1 for a single arrival."""
    return (len(arrivals) - 1) / arrivals[-1][0] if arrivals[-1][0] > 0 else 1.0


def poisson(per_s: float, count: int, seed: int) -> list[Arrival]:
    """Draws calls of size 1 at random times, at a mean rate."""
    random, at_s, arrivals = Random(f"{seed} arrivals"), 0.0, list[Arrival]()
    for _ in range(count):
        arrivals.append((at_s, 1))
        at_s += random.expovariate(per_s)
    return arrivals


def compressed(arrivals: Sequence[Arrival], factor: float) -> list[Arrival]:
    """Divides all times by a factor."""
    return [(at_s / factor, size) for at_s, size in arrivals]


def fitted(arrivals: Sequence[Arrival], model: Model) -> list[Arrival]:
    """Cuts sizes to the model's longest bucket; 1 where it has no buckets."""
    longest = max(model.size_buckets, default=1)
    return [(at_s, min(max(1, size), longest)) for at_s, size in arrivals]


def _arrivals(path: Path, rows: Sequence[tuple[int, list[str]]]) -> Iterator[Arrival]:
    heading = [cell.strip() for cell in rows[0][1]]
    time = next((name for name in _COLUMNS if name in heading), None)
    if time is None:
        if len(heading) > 1 or not _is_number(heading[0]):
            raise TraceError(
                f"{path}, line {rows[0][0]}: no column {' or '.join(_COLUMNS)} in "
                f"{','.join(heading)!r}; {_PLAIN}"
            )
        yield from ((_seconds(path, line, row, 0), 1) for line, row in rows)
        return
    at, parse = heading.index(time), _seconds if time == "t_s" else _moment
    size = heading.index(_COLUMNS[time]) if _COLUMNS[time] in heading else None
    for line, row in rows[1:]:
        yield parse(path, line, row, at), 1 if size is None else _size(path, line, row, size)


def _is_number(text: str) -> bool:
    try:
        return isfinite(float(text))
    except ValueError:
        return False


def _seconds(path: Path, line: int, row: list[str], column: int) -> float:
    return _cell(path, line, row, column, _finite, "a number of seconds")


def _moment(path: Path, line: int, row: list[str], column: int) -> float:
    expected = "a time like 2023-11-16 18:15:46.680"
    return _cell(
        path, line, row, column, lambda text: datetime.fromisoformat(text).timestamp(), expected
    )


def _size(path: Path, line: int, row: list[str], column: int) -> int:
    return int(_cell(path, line, row, column, int, "a whole number of tokens"))


def _finite(text: str) -> float:
    if not isfinite(value := float(text)):
        raise ValueError(text)
    return value


def _cell(
    path: Path, line: int, row: list[str], column: int, parse: Callable[[str], float], what: str
) -> float:
    if column >= len(row):
        raise TraceError(f"{path}, line {line}: {len(row)} columns; the heading names more")
    try:
        return parse(row[column].strip())
    except ValueError:
        raise TraceError(f"{path}, line {line}: {row[column]!r} is not {what}") from None
