"""Commands that check models of the models file."""

import sys
from pathlib import Path
from typing import Any

import click

from jobs import settings
from jobs.errors import Malformed, UnknownModel
from jobs.intake import validation
from jobs.models import models_file
from ops.cli import model_check
from ops.cli.commands.common import as_json_option, show


@click.group(epilog="Example: millrace model check mine --file models.toml")
def model() -> None:
    """Checks models before they are served."""


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
@as_json_option
def check(
    names: tuple[str, ...], path: Path | None, inputs_path: Path | None, as_json: bool
) -> None:
    """Loads models, warms them up, finds their best batch sizes and prints their curves."""
    configured = settings.load()
    declared = models_file.load(path or configured.models)
    try:
        models = [declared.resolve(name) for name in names] or list(declared)
    except UnknownModel as error:
        raise click.UsageError(str(error)) from error
    if inputs_path and len(models) != 1:
        raise click.UsageError("--input goes with the name of one model")
    inputs = _inputs(inputs_path) if inputs_path else []
    failed = False
    for model in models:
        try:
            report = model_check.check_model(model, configured.device, inputs)
        except model_check.ModelCheckFailed as error:
            failed = True
            show({"model": model.key, "error": str(error)}, (), as_json)
            if not as_json:
                click.echo(f"problem: {error}", err=True)
        else:
            show(report.as_json(), model_check.lines(report), as_json)
    sys.exit(1 if failed else 0)


def _inputs(path: Path) -> list[Any]:
    """Reads inputs: values, or the `input` of objects."""
    inputs = []
    for n, line in enumerate(path.read_bytes().splitlines(), start=1):
        if not line.strip():
            continue
        try:
            value = validation.parse_json(line)
        except Malformed as error:
            raise click.ClickException(f"{path}, line {n}: {error}") from error
        inputs.append(value["input"] if isinstance(value, dict) and "input" in value else value)
    if not inputs:
        raise click.ClickException(f"{path} holds no input")
    return inputs
