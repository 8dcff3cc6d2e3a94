"""Command that plans devices for all models of a history: `millrace plan --history`."""

from pathlib import Path

import click

from jobs import settings
from jobs.models import models_file
from jobs.models.registry import Registry
from ops.cli.commands.common import as_json_option, show
from ops.simulation import devices, history, launches
from ops.simulation.devices import Device
from ops.simulation.history import Row
from ops.simulation.placement import exact, tables
from ops.simulation.placement.inputs import HistoryRequest, works
from ops.simulation.placement.plan import plan_history as make_plan
from workers.simulation.costs import LaunchTimes

_FILE = click.Path(path_type=Path, dir_okay=False)


@click.command(
    "plan",
    epilog="Example: millrace plan --history arrivals.csv --devices kinds.toml --exact",
)
@click.option("--history", "path", type=_FILE, required=True,
              help="Calls and items by minute, from `millrace history export`.")  # fmt: skip
@click.option("--models", "models_path", type=_FILE,
              help="Models file; default: MILLRACE_MODELS.")  # fmt: skip
@click.option("--devices", "devices_path", type=_FILE,
              help="File of [[device]] entries; default: the models file.")  # fmt: skip
@click.option("--spot-share", type=click.FloatRange(0, 1),
              help="Share of spot devices, of kinds that have a spot price.")  # fmt: skip
@click.option("--quantile", type=click.FloatRange(0, 1, min_open=True), default=0.99,
              show_default=True, help="Of the minutes, whose calls are planned for.")  # fmt: skip
@click.option("--load-factor", type=click.FloatRange(0, min_open=True), default=1.0,
              help="Factor of all that comes, for growth.")  # fmt: skip
@click.option("--utilisation", type=click.FloatRange(0, 1, min_open=True), default=0.66,
              show_default=True,
              help="Load that devices are planned for: half as much again fits.")  # fmt: skip
@click.option("--device", default="", help="Torch device to measure on.")
@click.option("--exact", "with_exact", is_flag=True,
              help="Compute the optimum too; needs scipy.")  # fmt: skip
@as_json_option
def plan_history(
    path: Path, models_path: Path | None, devices_path: Path | None, spot_share: float | None,
    quantile: float, load_factor: float, utilisation: float, device: str, with_exact: bool,
    as_json: bool,
) -> None:  # fmt: skip
    """Places all models of a history on kinds of devices, and says what that costs and misses."""
    models_path = models_path or settings.load().models
    models, rows = models_file.load(models_path), history.read(path)
    kinds = devices.read(devices_path or models_path, spot_share)
    request = HistoryRequest(quantile, load_factor, utilisation)
    times = _measured(rows, models, request, kinds, device)
    found = make_plan(rows, models, kinds, times, request)
    optimum = None
    if with_exact:
        optimum = exact.solve(found.demands, found.all_kinds, utilisation)
    show(tables.as_json(found, request, optimum), tables.lines(found, request, optimum), as_json)


def _measured(
    rows: list[Row], models: Registry, request: HistoryRequest, kinds: list[Device], device: str
) -> dict[str, LaunchTimes]:
    """Measures here the models of which a kind has no times."""
    times = dict[str, LaunchTimes]()
    for work in works(rows, models, request)[0]:
        if any(kind.own_times(work.model) is None for kind in kinds):
            click.echo(f"measuring the launches of {work.model.key} here", err=True)
            times[work.model.key] = launches.measured(work.model, device)
    return times
