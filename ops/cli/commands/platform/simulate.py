"""Commands that predict latency and the number of replicas."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce, wraps
from pathlib import Path
from typing import Any, TypeVar

import click

from jobs import settings
from jobs.models import models_file
from jobs.models.model import Model
from jobs.rollouts.policy import Policy
from jobs.rollouts.policy import parse as parse_policy
from ops.cli.commands.common import as_json_option, show
from ops.cli.commands.platform.simulations.alternatives import CommandWithAlternatives
from ops.cli.commands.platform.simulations.generation import simulate_generation
from ops.cli.commands.platform.simulations.placement import plan_history
from ops.cli.commands.platform.simulations.scaling import simulate_scaling
from ops.simulation import devices, history, launches, tables, traces
from ops.simulation import plan as planning
from ops.simulation.capacity import Capacity
from ops.simulation.picture import draw
from ops.simulation.plan import PlanRequest
from ops.simulation.rollout import Regression, play
from ops.simulation.run import LaunchTimes, Overheads
from ops.simulation.run import simulate as run_simulation
from ops.simulation.traces import Arrival

T = TypeVar("T")

_FILE = click.Path(path_type=Path, dir_okay=False)
_ABOVE_0 = click.FloatRange(min=0, min_open=True)
_MOST_CALLS = 200_000  # of a history that are replayed
_POISSON_CALLS = 20_000  # without a trace


@dataclass(frozen=True, slots=True)
class _Setup:
    """Model and load of a simulation."""

    model: Model
    trace_name: str  #: name of the file of arrivals
    models_path: Path | None  #: models file
    arrivals: Sequence[Arrival]
    overheads: Overheads
    times: Callable[[], LaunchTimes]  #: launch times: the given ones, or measured here


#: Options of both commands.
_SHARED = (
    click.option(
        "--trace",
        "trace_path",
        type=_FILE,
        help="File of arrivals, or a history; default: calls at random times, at --rate.",
    ),
    click.option("--model", "name", required=True, help="Name, or name@version."),
    click.option(
        "--models", "models_path", type=_FILE, help="Models file; default: MILLRACE_MODELS."
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


def _setup_command(function: Callable[..., None]) -> Callable[..., None]:
    """Passes a command its `setup`, by the options of both commands."""

    @wraps(function)
    def run(
        trace_path: Path | None, name: str, models_path: Path | None, compress: float | None,
        rate: float | None, target_ms: int | None, profile: Path | None, launch_ms: str | None,
        device: str, overhead_ms: tuple[float, float], **options: Any,
    ) -> None:  # fmt: skip
        """Runs the command."""
        _at_most_one(compress=compress, rate=rate, load=options.get("load"))
        models_path = models_path or settings.load().models
        model = models_file.load(models_path).resolve(name)
        model = replace(model, target_ms=target_ms) if target_ms else model
        arrivals = _arrivals(trace_path, model, rate, options["seed"])
        if rate:
            compress = rate / traces.rate_per_s(arrivals)
        if compress:
            arrivals = traces.compressed(arrivals, compress)
        overheads = Overheads(*(ms / 1000 for ms in overhead_ms))
        times = partial(_times, model, models_path, profile, launch_ms, device)
        trace_name = trace_path.name if trace_path else "random calls"
        function(_Setup(model, trace_name, models_path, arrivals, overheads, times), **options)

    return reduce(lambda inner, option: option(inner), reversed(_SHARED), run)


def _arrivals(path: Path | None, model: Model, rate: float | None, seed: int) -> Sequence[Arrival]:
    """Reads the calls of a trace, or of the busiest time of a history; without a file, draws calls
    at random times."""
    if path is None:
        if rate is None:
            raise click.UsageError("a --trace, or a --rate, is needed")
        if model.size_buckets:
            raise click.UsageError(f"{model.key} takes inputs of different lengths: give a --trace")
        return traces.poisson(rate, _POISSON_CALLS, seed)
    if history.is_history(path):
        rows = history.read(path)
        return traces.fitted(history.arrivals(rows, model.key, _MOST_CALLS, seed), model)
    return traces.fitted(traces.read(path), model)


def _regression(
    context: click.Context, option: click.Parameter, value: str | None
) -> Regression | None:
    return _parsed(Regression.parse, value) if value is not None else None


def _policy(context: click.Context, option: click.Parameter, value: str) -> Policy:
    return _parsed(lambda text: parse_policy(json.loads(text)), value)


def _parsed(parse: Callable[[str], T], value: str) -> T:
    try:
        return parse(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


@click.command(
    cls=CommandWithAlternatives,
    alternatives={"--generation": simulate_generation, "--autoscale": simulate_scaling},
    epilog="Example: millrace simulate --trace calls.csv --model batchstring --replicas 2 "
    "--load 0.65 --launch-ms 100. For models that generate: --generation TRACE; "
    "for the autoscaler: --autoscale TRACE; see their --help.",
)
@_setup_command
@click.option("--replicas", type=click.IntRange(1), required=True, help="Number of replicas.")
@click.option("--load", type=_ABOVE_0, help="Compress it to this share of the capacity.")
@click.option("--job", is_flag=True, help="Add a job that never runs out of items.")
@click.option("--picture", type=_FILE, help="Draw a picture to this file (.svg, .png).")
@click.option(
    "--rollout",
    callback=_regression,
    help="Roll a version out with errors=SHARE,latency=FACTOR,cost=FACTOR, or none of them.",
)
@click.option("--policy", callback=_policy, default="{}", help="Policy of the rollout, JSON.")
def simulate(
    setup: _Setup, replicas: int, load: float | None, job: bool, picture: Path | None,
    rollout: Regression | None, policy: Policy, seed: int, as_json: bool,
) -> None:  # fmt: skip
    """Replays arrivals against the scheduler, on a virtual clock."""
    _at_most_one(rollout=rollout, job=job or None, picture=picture)
    model, arrivals, times = setup.model, setup.arrivals, setup.times()
    sizes = [size for _, size in arrivals]
    if load:
        rate_per_s = load * replicas * Capacity.of(model, times, sizes).per_s
        arrivals = traces.compressed(arrivals, rate_per_s / traces.rate_per_s(arrivals))
    if rollout is not None:
        shared = model, replicas, arrivals, times
        played = play(*shared, rollout, policy, overheads=setup.overheads, seed=seed)
        show(played.as_json(), tables.rollout(played, model, replicas), as_json)
        return
    result = run_simulation(
        model,
        replicas,
        arrivals,
        times,
        overheads=setup.overheads,
        job_sizes=sizes if job else (),
        lasts_s=arrivals[-1][0],
        seed=seed,
    )
    if picture:
        draw(result, f"{model.key}, {replicas} replicas, {setup.trace_name}", picture)
    rate_per_s = traces.rate_per_s(arrivals)
    figures = {
        "rate_per_s": rate_per_s,
        "replicas": replicas,
        **tables.as_json(result),
        "launch_times": launches.as_json(model, times),
    }
    show(figures, tables.simulation(result, model, rate_per_s), as_json)


@click.command(
    cls=CommandWithAlternatives,
    alternatives={"--history": plan_history},
    epilog="Example: millrace plan --trace calls.csv --model minilm --target-ms 250 --rate 100. "
    "For all models of a history: --history FILE; see its --help.",
)
@_setup_command
@click.option("--devices", "devices_path", type=_FILE,
              help="File of [[device]] entries; default: the models file.")  # fmt: skip
@click.option("--spot-share", type=click.FloatRange(0, 1),
              help="Share of spot devices, of kinds that have a spot price.")  # fmt: skip
@click.option("--load-factor", type=_ABOVE_0, default=1.0, help="Factor of the rate, for growth.")
@click.option("--miss-share", type=click.FloatRange(0, 1), default=0.01, show_default=True,
              help="Bound of late or refused calls.")  # fmt: skip
@click.option("--utilisation", type=click.FloatRange(0, 1, min_open=True), default=0.8,
              show_default=True, help="Utilisation that the formula assumes.")  # fmt: skip
def plan(
    setup: _Setup, devices_path: Path | None, spot_share: float | None, load_factor: float,
    miss_share: float, utilisation: float, seed: int, as_json: bool,
) -> None:  # fmt: skip
    """Finds the number of replicas, by kind of device, and the price."""
    request = PlanRequest(
        model=setup.model,
        arrivals=traces.compressed(setup.arrivals, load_factor),
        overheads=setup.overheads,
        bad_share=miss_share,
        utilisation=utilisation,
        seed=seed,
    )
    here = None
    plans = []
    for kind in devices.read(devices_path or setup.models_path, spot_share):
        times = kind.own_times(setup.model)
        if times is None:
            here = here or setup.times()
            times = here.faster(kind.speed)
        plans.append(planning.plan(request, kind, times))
    show(tables.plans_as_json(plans, request), tables.plans(plans, request), as_json)


def _times(
    model: Model,
    models_path: Path | None,
    profile: Path | None,
    launch_ms: str | None,
    device: str,
) -> LaunchTimes:
    _at_most_one(profile=profile, launch_ms=launch_ms)
    if launch_ms:
        return launches.parse_times(launch_ms)
    if profile:
        return launches.from_file(profile, model)
    click.echo(f"measuring the launches of {model.key} here", err=True)
    return launches.measured(model, device, models_path)


def _at_most_one(**options: Any) -> None:
    used = [f"--{name.replace('_', '-')}" for name, value in options.items() if value is not None]
    if len(used) > 1:
        raise click.UsageError(f"{' and '.join(used)} exclude each other")
