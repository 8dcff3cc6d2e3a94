"""A simulation as a picture: latency, the queue, and launches; parts that pictures share."""

from collections.abc import Iterable
from itertools import accumulate
from pathlib import Path
from typing import Any

import click

from workers.simulation.result import Result, quantile

BLUE, PALE, RED = "#08519c", "#9ecae1", "#de2d26"
_BINS = 100  # stretches of time, at most


def draw(result: Result, title: str, path: Path) -> None:
    """Writes it; the file's ending says in which format."""
    figure = new_figure(10, 5)
    (latency, spread), (queue, rows) = figure.subplots(2, 2)
    figure.suptitle(title)
    _latency(latency, result)
    _spread(spread, result)
    _queue(queue, result)
    _rows(rows, result)
    save(figure, path)


def new_figure(width: float, height: float) -> Any:
    """Returns a figure of so many inches. Raises click.ClickException without matplotlib."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise click.ClickException(
            "a picture needs matplotlib: pip install 'millrace[bench]'"
        ) from error
    return Figure(figsize=(width, height), layout="constrained")


def save(figure: Any, path: Path) -> None:
    """Writes a figure: the same one gives the same bytes. Raises click.ClickException."""
    from matplotlib import rc_context

    try:
        with rc_context({"svg.hashsalt": "millrace", "svg.fonttype": "none", "font.size": 9}):
            figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
    except (OSError, ValueError) as error:
        raise click.ClickException(f"the picture can't be written: {error}") from error


def _latency(axes: Any, result: Result) -> None:
    """Percentiles of each stretch of time; what was not answered as marks on the target."""
    stretches = _by_time((call.arrived_s, call.latency_s) for call in result.answered)
    for percent, colour in ((50, PALE), (95, BLUE)):
        ms = [quantile(sorted(found), percent / 100) * 1000 for found in stretches.values()]
        axes.plot(list(stretches), ms, color=colour, lw=1, label=f"p{percent}")
    lost = _by_time((call.arrived_s, 1) for call in result.calls if call.outcome != "answered")
    axes.plot(list(lost), [result.target_s * 1000] * len(lost), "x", color=RED, label="refused")
    axes.axhline(result.target_s * 1000, color=RED, lw=1)
    axes.set_ylim(bottom=0)
    axes.legend(loc="lower right")
    axes.set_title("Latency, ms, by s; the target in red")


def _spread(axes: Any, result: Result) -> None:
    shares = [n / _BINS for n in range(_BINS + 1)]
    axes.plot([quantile(result.latencies_s, share) * 1000 for share in shares], shares, color=BLUE)
    axes.axvline(result.target_s * 1000, color=RED, lw=1)
    axes.set_xlim(left=0)
    axes.set_title("Share of answered calls, by ms")


def _queue(axes: Any, result: Result) -> None:
    launched = [call for call in result.calls if call.launched_s]
    changes = sorted(
        [(call.arrived_s, 1) for call in launched] + [(call.launched_s, -1) for call in launched]
    )
    waiting = accumulate(step for _, step in changes)
    stretches = _by_time(zip((at_s for at_s, _ in changes), waiting, strict=True))
    axes.step(list(stretches), [max(found) for found in stretches.values()], color=BLUE, lw=1)
    axes.set_ylim(bottom=0)
    axes.set_title("Calls waiting at most, by s")


def _rows(axes: Any, result: Result) -> None:
    launches = [launch for launch in result.launches if launch.calls]
    kinds = {"calls": [launch.calls for launch in launches]}
    if any(items := [launch.items for launch in launches]):
        kinds["items"] = items
    bins = min(_BINS, max((launch.rows for launch in launches), default=1))
    for (label, sizes), colour in zip(kinds.items(), (BLUE, PALE), strict=False):
        axes.hist(sizes, bins=bins, histtype="step", label=label, color=colour)
    axes.legend()
    axes.set_title("Launches with calls, by rows")


def _by_time(points: Iterable[tuple[float, float]]) -> dict[float, list[float]]:
    """Values in stretches of time, by the middle of each."""
    pairs = list(points)
    width_s = max((at_s for at_s, _ in pairs), default=0.0) / _BINS or 1.0
    stretches: dict[float, list[float]] = {}
    for at_s, value in sorted(pairs):
        middle_s = (int(at_s / width_s) + 0.5) * width_s
        stretches.setdefault(middle_s, []).append(value)
    return stretches
