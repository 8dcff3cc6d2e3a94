"""A comparison of controllers as a picture: the load, and the replicas of each."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ops.simulation.picture import BLUE, PALE, new_figure, save
from ops.simulation.scaling.compare import Comparison
from ops.simulation.scaling.fluid import DECIDES_S, Load

_POINTS = 240  # of a line, at most
_HOUR_S = 3600.0


def draw(found: Comparison, load: Load, title: str, path: Path) -> None:
    """Writes a plot for each controller and the clairvoyant, over the same load. The file's ending
    says in which format. Raises click.ClickException without matplotlib."""
    figure = new_figure(10, 9)
    figure.suptitle(title)
    oracle = found.oracle
    series: list[tuple[str, Sequence[float], float]] = [
        (f"{run.name}: {found.over_oracle(run):.2f} times the clairvoyant's hours, "
         f"{run.refused:.2%} refused", run.replicas, _step_s(load))
        for run in found.runs
    ]  # fmt: skip
    series.append(("the clairvoyant: refuses nothing", oracle.ready, oracle.block_s))
    plots = figure.subplots(len(series), 1, sharex=True, sharey=True)
    unit_s, unit = (_HOUR_S, "h") if len(load.work) * load.step_s > 2 * _HOUR_S else (60.0, "min")
    for axes, (label, replicas, step_s) in zip(plots, series, strict=True):
        _fill(axes, load, unit_s)
        at_s, most = _thinned(replicas, step_s, max)
        axes.step([at / unit_s for at in at_s], most, where="post", color=BLUE, lw=0.9)
        axes.set_title(label, loc="left")
    plots[-1].set_ylim(bottom=0)  # of all: after the highest line is drawn
    plots[-1].set_xlabel(f"{unit}; ready replicas in blue, work of the calls in light blue")
    save(figure, path)


def _fill(axes: Any, load: Load, unit_s: float) -> None:
    at_s, work = _thinned(load.work, load.step_s, lambda its: sum(its) / len(its))
    rates = [each / load.step_s for each in work]
    axes.fill_between([at / unit_s for at in at_s], rates, step="post", color=PALE, lw=0)


def _step_s(load: Load) -> float:
    """Returns the time between two decisions."""
    return max(1, round(DECIDES_S / load.step_s)) * load.step_s


def _thinned(values: Sequence[float], step_s: float, one: Any) -> tuple[list[float], list[float]]:
    """Returns times and values of so many stretches, each with one value for all of it."""
    width = -(-len(values) // _POINTS)
    starts = range(0, len(values), width)
    return [n * step_s for n in starts], [one(values[n : n + width]) for n in starts]
