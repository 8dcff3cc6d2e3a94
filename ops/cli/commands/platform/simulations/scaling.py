"""Command that runs the autoscaler on a trace: `millrace simulate --autoscale`."""

from pathlib import Path
from typing import Any

import click

from jobs.scaling import policy as policies
from ops.cli.commands.common import JsonObject, as_json_option, show
from ops.simulation import history, traces
from ops.simulation.scaling import compare, loads
from ops.simulation.scaling.fluid import Load
from ops.simulation.scaling.picture import draw

_ABOVE_0 = click.FloatRange(min=0, min_open=True)
_WORK = 5.0  # mean work of a trace, in replicas


@click.command(
    "simulate",
    epilog="Example: millrace simulate --autoscale AzureLLMInferenceTrace_conv.csv --work 5 "
    "--boot-s 30",
)
@click.option("--autoscale", "path", type=click.Path(path_type=Path, dir_okay=False),
              required=True, help="File of arrivals, or a history.")  # fmt: skip
@click.option("--work", type=_ABOVE_0,
              help="Mean work of the trace, in replicas; default: 5, or that of the pool's "
              "history.")  # fmt: skip
@click.option("--pool", help="Pool of the history; default: the only one.")
@click.option("--boot-s", type=click.FloatRange(min=0), default=60.0, show_default=True,
              help="Time until a new replica is ready.")  # fmt: skip
@click.option("--target-ms", type=_ABOVE_0, default=500.0, show_default=True,
              help="Time that calls may wait; what would wait longer is refused.")  # fmt: skip
@click.option("--days", type=click.IntRange(1), default=None,
              help="Make so many days of its shape, over a day's curve.")  # fmt: skip
@click.option("--policy", type=JsonObject(), default="{}", help="Terms that differ from defaults.")
@click.option("--picture", type=click.Path(path_type=Path, dir_okay=False),
              help="Draw load and replicas of each to this file (.svg, .png).")  # fmt: skip
@as_json_option
def simulate_scaling(
    path: Path, work: float | None, pool: str | None, boot_s: float, target_ms: float,
    days: int | None, policy: dict[str, Any], picture: Path | None, as_json: bool,
) -> None:  # fmt: skip
    """Runs the autoscaler on a trace, beside a static pool, Kubernetes' autoscaler, a queue's
    length, and a clairvoyant."""
    load = _load(path, work, pool, target_ms / 1000)
    if days:
        load = loads.days(load, days, load.mean)
    most = {"max_replicas": max(10, round(10 * load.mean)), "boot_s": boot_s}
    try:
        terms = policies.parse({**most, **policy})
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--policy") from None
    found = compare.compare(load, terms, boot_s)
    if picture:
        draw(found, load, f"{path.name}, a boot of {boot_s:g} s", picture)
    show(compare.as_json(found), compare.lines(found), as_json)


def _load(path: Path, work: float | None, pool: str | None, target_s: float) -> Load:
    """Reads a trace, or the work of a pool in a history."""
    if not history.is_history(path):
        if pool:
            raise click.UsageError("--pool goes with a history")
        return loads.from_arrivals(traces.read(path), work or _WORK, target_s=target_s)
    rows = [row for row in history.read(path) if row.kind == "work"]
    pools = sorted({row.name for row in rows})
    if not pools:
        raise click.UsageError(f"{path} has no work of pools: only those with a policy have any")
    if pool is None and len(pools) > 1:
        raise click.UsageError(f"--pool is needed; the history has {', '.join(pools)}")
    if pool is not None and pool not in pools:
        raise click.UsageError(f"the history has no pool {pool!r}; it has {', '.join(pools)}")
    its = [row for row in rows if row.name == (pool or pools[0])]
    return loads.from_history(its, work, target_s=target_s)
