"""Traces of models that generate: arrivals with tokens of prompt and output."""

import csv
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path

from ops.simulation.traces import TraceError
from workers.simulation.generation import Arrival

_TIMES, _INPUTS = ("TIMESTAMP", "t_s"), ("ContextTokens", "in_tokens")
_OUTPUTS = ("GeneratedTokens", "out_tokens")
_FRACTION = 26  # characters of a time with microseconds


def read(path: Path) -> list[Arrival]:
    """Reads arrivals in order; the first one is at 0. Raises TraceError.

    Columns: TIMESTAMP (a date and time) or t_s (seconds), ContextTokens or in_tokens,
    GeneratedTokens or out_tokens.
    """
    try:
        with path.open(newline="", encoding="utf-8") as file:
            arrivals = sorted(_arrivals(path, csv.DictReader(file)), key=lambda one: one.at_s)
    except OSError as error:
        raise TraceError(f"{path} can't be read: {error.strerror}") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise TraceError(f"{path} is no text of lines: {error}") from error
    if not arrivals:
        raise TraceError(f"{path} has no arrivals")
    first_s = arrivals[0].at_s
    return [Arrival(one.at_s - first_s, one.input, one.output) for one in arrivals]


def compressed(arrivals: Sequence[Arrival], factor: float) -> list[Arrival]:
    """Divides all times by a factor."""
    return [Arrival(one.at_s / factor, one.input, one.output) for one in arrivals]


def _arrivals(path: Path, rows: "csv.DictReader[str]") -> Iterator[Arrival]:
    named = [
        next((name for name in names if name in (rows.fieldnames or ())), None)
        for names in (_TIMES, _INPUTS, _OUTPUTS)
    ]
    for name, names in zip(named, (_TIMES, _INPUTS, _OUTPUTS), strict=True):
        if name is None:
            raise TraceError(f"{path} has no column {' or '.join(names)}")
    time, tokens_in, tokens_out = (name or "" for name in named)
    for row in rows:
        try:
            at_s = float(row[time]) if time == "t_s" else _seconds(row[time])
            yield Arrival(at_s, int(row[tokens_in]), int(row[tokens_out]))
        except (TypeError, ValueError) as error:
            raise TraceError(f"{path}, line {rows.line_num}: {error}") from error


def _seconds(moment: str) -> float:
    return datetime.fromisoformat(moment.strip()[:_FRACTION]).timestamp()
