"""Parts that several pictures share."""

import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from ops.bench.harness.platform import say
from ops.bench.load.open_loop import Calls, Column

matplotlib.use("svg")
matplotlib.rcParams.update({"svg.hashsalt": "millrace", "svg.fonttype": "none", "font.size": 9})

TARGET_COLOUR, LIGHT, DARK = "#de2d26", "#9ecae1", "#08519c"
_PICTURES = Path(__file__).parents[2] / "docs" / "pictures"
_SHARES = np.concatenate([np.arange(0, 99, 0.5), np.arange(99, 100.01, 0.05)]).clip(0, 100)


def picture(columns: int, width: float, height: float = 2.8, rows: int = 1) -> tuple[Figure, Any]:
    """Figure with so many plots, and its axes."""
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots(rows, columns)


def save_picture(name: str, figure: Figure, quick: bool = False) -> None:
    """Writes ops/docs/pictures/bench-<name>.svg: the same figures give the same bytes.

    quick: writes to the temporary folder instead, as where there is no checkout.
    """
    quick = quick or not _PICTURES.is_dir()
    path = (Path(tempfile.gettempdir()) if quick else _PICTURES) / f"bench-{name}.svg"
    figure.savefig(path, metadata={"Date": None, "Creator": None})
    if quick:
        say(f"the picture: {path}")


def label(axes: Any, title: str = "", x: str = "", y: str = "", legend: bool = False) -> None:
    """Sets the texts of a plot."""
    if title:
        axes.set_title(title)
    if x:
        axes.set_xlabel(x)
    if y:
        axes.set_ylabel(y)
    if legend:
        axes.legend()


def latencies(runs: Iterable[Calls]) -> Column:
    """Latencies of the right responses of all runs, ms."""
    return np.concatenate([calls.latency_ms[calls.right] for calls in runs])


def distributions(
    axes: Any, samples: Mapping[str, Column | Sequence[float]], title: str = "",
    x: str = "ms from the due time", y: str = "share of calls", target_ms: float = 0.0,
) -> None:  # fmt: skip
    """Cumulative distributions by name, in the same number of points for any number of samples."""
    for name, values in samples.items():
        if len(values):
            axes.plot(np.percentile(values, _SHARES), _SHARES / 100, label=name)
    if target_ms:
        axes.axvline(target_ms, color=TARGET_COLOUR, lw=1, label="target")
    label(axes, title, x, y, legend=True)


def bars(axes: Any, runs: Mapping[str, Sequence[float]], title: str = "", x: str = "") -> None:
    """Horizontal bar of the median, and a dot a run, for each name; the first one on top."""
    for row, values in enumerate(runs.values()):
        axes.barh(row, median(values), color=LIGHT)
        axes.plot(values, [row] * len(values), "o", color=DARK, ms=4)
    axes.set_yticks(range(len(runs)), [name.replace("_", " ") for name in runs])
    axes.invert_yaxis()
    label(axes, title, x)
