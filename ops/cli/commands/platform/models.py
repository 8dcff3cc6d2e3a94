"""Commands that check models of the models file."""

import json
import sys
from pathlib import Path
from typing import Any

import click

from jobs import settings
from jobs.errors import Malformed, UnknownModel
from jobs.intake import validation
from jobs.models import models_file
from jobs.models.model import Model
from ops.cli.commands.common import as_json_option


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
    "inputs",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Inputs as JSON, one a line; default: the model's samples.",
)
@as_json_option
def check(names: tuple[str, ...], path: Path | None, inputs: Path | None, as_json: bool) -> None:
    """Loads models, warms them up, finds their best batch sizes and prints their curves."""
    from ops.cli import model_check

    found = settings.load()
    declared = models_file.load(path or found.models)
    try:
        chosen = [declared.resolve(name) for name in names] or list(declared)
    except UnknownModel as error:
        raise click.UsageError(str(error)) from error
    if inputs and len(chosen) != 1:
        raise click.UsageError("--input goes with the name of one model")
    given = _inputs(inputs) if inputs else []
    failed = False
    for one in chosen:
        try:
            tried = model_check.check_model(one, found.device, given)
        except model_check.ModelCheckFailed as error:
            failed = True
            _show_failure(one, str(error), as_json)
            continue
        click.echo(json.dumps(tried.as_json()) if as_json else "\n".join(model_check.lines(tried)))
    sys.exit(1 if failed else 0)


def _show_failure(model: Model, error: str, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps({"model": model.key, "error": error}))
    else:
        click.echo(f"problem: {error}", err=True)


def _inputs(path: Path) -> list[Any]:
    """Reads inputs: values, or the `input` of objects."""
    found = []
    for n, line in enumerate(path.read_bytes().splitlines(), start=1):
        if not line.strip():
            continue
        try:
            value = validation.parse_json(line)
        except Malformed as error:
            raise click.ClickException(f"{path}, line {n}: {error}") from error
        found.append(value["input"] if isinstance(value, dict) and "input" in value else value)
    if not found:
        raise click.ClickException(f"{path} holds no input")
    return found


COMMANDS = (model,)
