"""Commands that check models of the models file."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from jobs import settings
from jobs.errors import UnknownModel
from jobs.models import models_file
from jobs.models.model import Model
from ops.cli import generator_check, input_lines, model_check
from ops.cli.commands.common import as_json_option, show
from ops.cli.commands.platform.artifacts import sign, verify
from workers.device.monitoring.device_info import device_kind, device_memory, device_name
from workers.engines.common import user_code
from workers.engines.flops import peak_tflops


@click.group(epilog="Example: millrace model check mine --file models.toml")
def model() -> None:
    """Checks models before they are served."""


model.add_command(sign)
model.add_command(verify)


@model.command(epilog="Example: millrace model check mine --file models.toml --input inputs.jsonl")
@click.argument("names", nargs=-1)
@click.option(
    "--file",
    "path",
    type=click.Path(path_type=Path),
    help="Models file; default: MILLRACE_MODELS.",
)
@click.option(
    "--input",
    "inputs_path",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Inputs as JSON, one a line; default: the model's samples.",
)
@click.option("--plan", "only_plan", is_flag=True, help="Memory plans alone; loads nothing.")
@click.option(
    "--memory-mb",
    type=click.IntRange(min=0),
    default=0,
    help="Memory free on the device, for the plan, MiB; default: this machine's.",
)
@as_json_option
def check(
    names: tuple[str, ...],
    path: Path | None,
    inputs_path: Path | None,
    only_plan: bool,
    memory_mb: int,
    as_json: bool,
) -> None:
    """Loads models, warms them up, finds their best batch sizes and prints their curves.

    Of models that generate it prints the memory plan, what fits, and rates. What --json prints is
    the `curves` of a device of `millrace plan`.
    """
    configured = settings.load()
    declared = models_file.load(path or configured.models)
    user_code.search_beside(path or configured.models)
    try:
        models = [declared.resolve(name) for name in names] or list(declared)
    except UnknownModel as error:
        raise click.UsageError(str(error)) from error
    if inputs_path and len(models) != 1:
        raise click.UsageError("--input goes with the name of one model")
    inputs = input_lines.read(inputs_path) if inputs_path else []
    failed = False
    for model in models:
        try:
            if model.spec.generates or only_plan:
                device = device_name(configured)
                fits = _check_generator(model, device, inputs, only_plan, memory_mb, as_json)
                failed |= not fits
                continue
            report = _on_device(
                model_check.check_model(model, configured.device, inputs), device_name(configured)
            )
        except model_check.ModelCheckFailed as error:
            failed = True
            show({"model": model.key, "error": str(error)}, (), as_json)
            if not as_json:
                click.echo(f"problem: {error}", err=True)
        else:
            show(report.as_json(), model_check.lines(report), as_json)
    sys.exit(1 if failed else 0)


def _on_device(report: model_check.ModelReport, device: str) -> model_check.ModelReport:
    """Adds the device that a model was loaded on."""
    memory_gib, kind = round(device_memory(device)[1] / 2**30, 2), device_kind(device)
    return replace(report, device=kind, device_gib=memory_gib, peak_tflops=peak_tflops(kind))


def _check_generator(
    model: Model, device: str, inputs: list[Any], only_plan: bool, memory_mb: int, as_json: bool
) -> bool:
    """Prints the plan of a model that generates and, unless that is all, its rates. Returns False
    where it doesn't fit."""
    plan = generator_check.plan_model(model, device, memory_mb)
    if only_plan:
        report = generator_check.GeneratorReport(model.key, plan)
    else:
        report = generator_check.check_generator(model, device, inputs, plan=plan)
    show(report.as_json(), report.lines(), as_json)
    return not (plan and plan.problem())
