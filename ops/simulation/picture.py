"""A simulation as a picture: latency, the queue, and launches, over time and by size."""

from itertools import accumulate
from pathlib import Path
from typing import Any

import click

from workers.simulation.result import Result

_BLUE, _RED = "#08519c", "#de2d26"
_DOTS = 4000
_BINS = 60


def draw(result: Result, title: str, path: Path) -> None:
    """Writes it; the file's ending says in which format."""
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure
    except ImportError as error:
        raise click.ClickException(
            "a picture needs matplotlib: pip install 'millrace[bench]'"
        ) from error
    figure = Figure(figsize=(10, 5), layout="constrained")
    (latency, spread), (queue, rows) = figure.subplots(2, 2)
    figure.suptitle(title)
    _latency(latency, result)
    _spread(spread, result)
    _queue(queue, result)
    _rows(rows, result)
    try:
        with rc_context({"svg.hashsalt": "millrace", "svg.fonttype": "none", "font.size": 9}):
            figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
    except (OSError, ValueError) as error:
        raise click.ClickException(f"the picture can't be written: {error}") from error


def _latency(axes: Any, result: Result) -> None:
    answered = [call for call in result.calls if call.outcome == "answered"]
    some = answered[:: max(1, len(answered) // _DOTS)]
    axes.plot(
        [call.arrived_s for call in some],
        [call.latency_s * 1000 for call in some],
        ".", ms=1.5, color=_BLUE,
    )  # fmt: skip
    lost = [call.arrived_s for call in result.calls if call.outcome != "answered"]
    axes.plot(lost, [result.target_s * 1000] * len(lost), "|", color=_RED, label="not answered")
    axes.axhline(result.target_s * 1000, color=_RED, lw=1)
    axes.set_ylim(bottom=0)
    axes.set_title("Latency by time of arrival, ms; the target in red")


def _spread(axes: Any, result: Result) -> None:
    ms = [seconds * 1000 for seconds in result.latencies_s]
    axes.plot(ms, [(n + 1) / len(ms) for n in range(len(ms))], color=_BLUE)
    axes.axvline(result.target_s * 1000, color=_RED, lw=1)
    axes.set_xlim(left=0)
    axes.set_title("Share of answered calls, by ms")


def _queue(axes: Any, result: Result) -> None:
    launched = [call for call in result.calls if call.launched_s]
    changes = sorted(
        [(call.arrived_s, 1) for call in launched] + [(call.launched_s, -1) for call in launched]
    )
    times = [at_s for at_s, _ in changes]
    waiting = list(accumulate(step for _, step in changes))
    every = max(1, len(times) // _DOTS)
    axes.step(times[::every], waiting[::every], where="post", color=_BLUE, lw=0.7)
    axes.set_ylim(bottom=0)
    axes.set_title("Calls waiting, by s")


def _rows(axes: Any, result: Result) -> None:
    launches = [launch for launch in result.launches if launch.calls]
    sizes = [[launch.calls for launch in launches], [launch.items for launch in launches]]
    labels = ["calls", "items"]
    kept = 2 if any(sizes[1]) else 1
    axes.hist(sizes[:kept], bins=_BINS, label=labels[:kept], color=[_BLUE, "#9ecae1"][:kept])
    axes.legend()
    axes.set_title("Launches with calls, by rows")
