"""Commands that tell beforehand: what latency there would be, and how many replicas it takes."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from jobs import settings
from jobs.errors import UnknownModel
from jobs.models import models_file as models_file_registry
from jobs.models.model import Model
from ops.cli.commands.common import as_json_option

_FILE = click.Path(path_type=Path, dir_okay=False)
_ABOVE_0 = click.FloatRange(min=0, min_open=True)


_SHARED = (
    click.option("--trace", "trace_file", type=_FILE, required=True, help="arrivals"),
    click.option("--model", "name", required=True, help="name, or name@version"),
    click.option("--models", "models_file", type=_FILE, help="instead of MILLRACE_MODELS"),
    click.option("--compress", type=_ABOVE_0, help="the trace in so many times less time"),
    click.option("--rate", type=_ABOVE_0, help="compress it to this mean rate a second"),
    click.option("--target-ms", type=click.IntRange(1), help="instead of the model's"),
    click.option("--profile", type=_FILE, help="launch times, from what --json printed"),
    click.option("--launch-ms", help='launch times: "fixed,per row,per unit", ms'),
    click.option("--device", default="", help="torch device to measure on"),
    click.option(
        "--overhead-ms",
        nargs=2,
        type=click.FloatRange(0),
        default=(1.0, 0.6),
        show_default=True,
        help="around a call, and around a launch",
    ),
    click.option("--seed", default=0, show_default=True, help="of launch times and items"),
    as_json_option,
)
"""The options that both commands have."""


def _shared(function: Callable[..., Any]) -> Callable[..., Any]:
    for option in reversed(_SHARED):
        function = option(function)
    return function


@click.command(
    epilog="Example: millrace simulate --trace calls.csv --model batchstring --replicas 2 "
    "--load 0.65 --launch-ms 100"
)
@_shared
@click.option("--replicas", type=click.IntRange(1), required=True)
@click.option("--load", type=_ABOVE_0, help="compress to this share of the replicas' capacity")
@click.option("--job", is_flag=True, help="with a job beside the calls that always has more")
@click.option("--picture", type=_FILE, help="draw it into this file (.svg, .png)")
def simulate(
    trace_file: Path, name: str, models_file: Path | None, compress: float | None,
    rate: float | None, target_ms: int | None, profile: Path | None, launch_ms: str | None,
    device: str, overhead_ms: tuple[float, float], seed: int, as_json: bool, replicas: int,
    load: float | None, job: bool, picture: Path | None,
) -> None:  # fmt: skip
    """Replays arrivals against the scheduler, on a virtual clock."""
    from ops.simulation import launches, tables, traces
    from ops.simulation.capacity import Capacity
    from ops.simulation.picture import draw
    from ops.simulation.run import Overheads
    from ops.simulation.run import simulate as run

    _at_most_one(compress=compress, rate=rate, load=load)
    model = _model(name, models_file, target_ms)
    arrivals = traces.fitted(traces.read(trace_file), model)
    times = _times(model, profile, launch_ms, device)
    sizes = [size for _, size in arrivals]
    if load:
        rate = load * replicas * Capacity.of(model, times, sizes).per_s
    arrivals = _compressed(arrivals, compress, rate)
    call_s, launch_s = (ms / 1000 for ms in overhead_ms)
    result = run(
        model,
        replicas,
        arrivals,
        times,
        overheads=Overheads(call_s, launch_s),
        job_sizes=sizes if job else (),
        lasts_s=arrivals[-1][0],
        seed=seed,
    )
    if picture:
        draw(result, f"{model.key}, {replicas} replicas, {trace_file.name}", picture)
    if as_json:
        head = {"rate_per_s": traces.rate_per_s(arrivals), "replicas": replicas}
        kept = {"launch_times": launches.as_json(model, times)}
        click.echo(json.dumps({**head, **tables.as_json(result), **kept}))
    else:
        click.echo("\n".join(tables.simulation(result, model, traces.rate_per_s(arrivals))))


@click.command(
    epilog="Example: millrace plan --trace calls.csv --model minilm --target-ms 250 --rate 100"
)
@_shared
@click.option("--load-factor", type=_ABOVE_0, default=1.0, help="times the rate: for growth")
@click.option("--miss-share", type=click.FloatRange(0, 1), default=0.01, show_default=True,
              help="of the calls that may be late or refused")  # fmt: skip
@click.option("--utilisation", type=click.FloatRange(0, 1, min_open=True), default=0.8,
              show_default=True, help="that the formula counts with")  # fmt: skip
def plan(
    trace_file: Path, name: str, models_file: Path | None, compress: float | None,
    rate: float | None, target_ms: int | None, profile: Path | None, launch_ms: str | None,
    device: str, overhead_ms: tuple[float, float], seed: int, as_json: bool, load_factor: float,
    miss_share: float, utilisation: float,
) -> None:  # fmt: skip
    """Says how many replicas it takes, of which kind of device, at which price."""
    from ops.simulation import devices, tables, traces
    from ops.simulation.plan import PlanRequest
    from ops.simulation.plan import plan as plan_for
    from ops.simulation.run import Overheads

    _at_most_one(compress=compress, rate=rate)
    model = _model(name, models_file, target_ms)
    kinds = devices.read(models_file or settings.load().models)
    arrivals = _compressed(traces.fitted(traces.read(trace_file), model), compress, rate)
    call_s, launch_s = (ms / 1000 for ms in overhead_ms)
    asked = PlanRequest(
        model=model,
        arrivals=traces.compressed(arrivals, load_factor),
        overheads=Overheads(call_s, launch_s),
        bad_share=miss_share,
        utilisation=utilisation,
        seed=seed,
    )
    here = None
    found = []
    for kind in kinds:
        times = kind.own_times(model)
        if times is None:
            here = here or _times(model, profile, launch_ms, device)
            times = here.faster(kind.speed)
        found.append(plan_for(asked, kind, times))
    if as_json:
        click.echo(json.dumps(tables.plans_as_json(found, asked)))
    else:
        click.echo("\n".join(tables.plans(found, asked)))


def _model(name: str, models_file: Path | None, target_ms: int | None) -> Model:
    models = models_file_registry.load(models_file or settings.load().models)
    try:
        model = models.resolve(name)
    except UnknownModel as error:
        raise click.ClickException(str(error)) from error
    return replace(model, target_ms=target_ms) if target_ms else model


def _times(model: Model, profile: Path | None, launch_ms: str | None, device: str) -> Any:
    from ops.simulation import launches

    _at_most_one(profile=profile, launch_ms=launch_ms)
    if launch_ms:
        return launches.given(launch_ms)
    if profile:
        return launches.kept(profile, model)
    click.echo(f"measuring the launches of {model.key} here", err=True)
    return launches.measured(model, device)


def _compressed(arrivals: Any, compress: float | None, rate: float | None) -> Any:
    from ops.simulation import traces

    if rate:
        compress = rate / traces.rate_per_s(arrivals)
    return traces.compressed(arrivals, compress) if compress else arrivals


def _at_most_one(**options: Any) -> None:
    given = [f"--{name.replace('_', '-')}" for name, value in options.items() if value is not None]
    if len(given) > 1:
        raise click.UsageError(f"{' and '.join(given)} exclude each other")


COMMANDS = (simulate, plan)
