"""Commands that predict latency and the number of replicas."""

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


#: Options of both commands.
_SHARED = (
    click.option("--trace", "trace_file", type=_FILE, required=True, help="File of arrivals."),
    click.option("--model", "name", required=True, help="Name, or name@version."),
    click.option(
        "--models", "models_file", type=_FILE, help="Models file; default: MILLRACE_MODELS."
    ),
    click.option("--compress", type=_ABOVE_0, help="Divide the trace's times by this factor."),
    click.option("--rate", type=_ABOVE_0, help="Compress it to this mean rate a second."),
    click.option(
        "--target-ms", type=click.IntRange(1), help="Latency target; default: the model's."
    ),
    click.option("--profile", type=_FILE, help="Launch times, from the output of --json."),
    click.option("--launch-ms", help='Launch times: "fixed,per row,per unit", ms.'),
    click.option("--device", default="", help="Torch device to measure on."),
    click.option(
        "--overhead-ms",
        nargs=2,
        type=click.FloatRange(0),
        default=(1.0, 0.6),
        show_default=True,
        help="Overheads of a call and of a launch.",
    ),
    click.option("--seed", default=0, show_default=True, help="Seed of launch times and items."),
    as_json_option,
)


def _shared(function: Callable[..., Any]) -> Callable[..., Any]:
    for option in reversed(_SHARED):
        function = option(function)
    return function


@click.command(
    epilog="Example: millrace simulate --trace calls.csv --model batchstring --replicas 2 "
    "--load 0.65 --launch-ms 100"
)
@_shared
@click.option("--replicas", type=click.IntRange(1), required=True, help="Number of replicas.")
@click.option("--load", type=_ABOVE_0, help="Compress it to this share of the capacity.")
@click.option("--job", is_flag=True, help="Add a job that never runs out of items.")
@click.option("--picture", type=_FILE, help="Draw a picture to this file (.svg, .png).")
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
        measured = {"launch_times": launches.as_json(model, times)}
        click.echo(json.dumps({**head, **tables.as_json(result), **measured}))
    else:
        click.echo("\n".join(tables.simulation(result, model, traces.rate_per_s(arrivals))))


@click.command(
    epilog="Example: millrace plan --trace calls.csv --model minilm --target-ms 250 --rate 100"
)
@_shared
@click.option("--load-factor", type=_ABOVE_0, default=1.0, help="Factor of the rate, for growth.")
@click.option("--miss-share", type=click.FloatRange(0, 1), default=0.01, show_default=True,
              help="Bound of late or refused calls.")  # fmt: skip
@click.option("--utilisation", type=click.FloatRange(0, 1, min_open=True), default=0.8,
              show_default=True, help="Utilisation that the formula assumes.")  # fmt: skip
def plan(
    trace_file: Path, name: str, models_file: Path | None, compress: float | None,
    rate: float | None, target_ms: int | None, profile: Path | None, launch_ms: str | None,
    device: str, overhead_ms: tuple[float, float], seed: int, as_json: bool, load_factor: float,
    miss_share: float, utilisation: float,
) -> None:  # fmt: skip
    """Finds the number of replicas, by kind of device, and the price."""
    from ops.simulation import devices, tables, traces
    from ops.simulation.plan import PlanRequest
    from ops.simulation.plan import plan as plan_for
    from ops.simulation.run import Overheads

    _at_most_one(compress=compress, rate=rate)
    model = _model(name, models_file, target_ms)
    kinds = devices.read(models_file or settings.load().models)
    arrivals = _compressed(traces.fitted(traces.read(trace_file), model), compress, rate)
    call_s, launch_s = (ms / 1000 for ms in overhead_ms)
    request = PlanRequest(
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
        found.append(plan_for(request, kind, times))
    if as_json:
        click.echo(json.dumps(tables.plans_as_json(found, request)))
    else:
        click.echo("\n".join(tables.plans(found, request)))


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
        return launches.parse_times(launch_ms)
    if profile:
        return launches.from_file(profile, model)
    click.echo(f"measuring the launches of {model.key} here", err=True)
    return launches.measured(model, device)


def _compressed(arrivals: Any, compress: float | None, rate: float | None) -> Any:
    from ops.simulation import traces

    if rate:
        compress = rate / traces.rate_per_s(arrivals)
    return traces.compressed(arrivals, compress) if compress else arrivals


def _at_most_one(**options: Any) -> None:
    used = [f"--{name.replace('_', '-')}" for name, value in options.items() if value is not None]
    if len(used) > 1:
        raise click.UsageError(f"{' and '.join(used)} exclude each other")


COMMANDS = (simulate, plan)
