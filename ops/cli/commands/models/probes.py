"""Command that records known answers: what a version must answer before a worker serves it."""

from pathlib import Path
from typing import Any

import click

from ops.cli import input_lines
from ops.cli.admin_database import admin_database
from ops.cli.commands.common import JsonObject, Number, as_json_option
from ops.cli.registry_changes import changing, read_version, show_changes
from ops.embedded import defaults

_File = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.group(epilog="Example: millrace models probe record x@2 --input inputs.jsonl")
def probe() -> None:
    """Known answers of versions."""


@probe.command(epilog="Example: millrace models probe record x@2 --input inputs.jsonl")
@click.argument("key", metavar="NAME@VERSION")
@click.option(
    "--input",
    "inputs",
    type=_File,
    help="Inputs as JSON, one a line; default: samples of its engine.",
)
@click.option("--params", type=JsonObject(), default="{}", help="Parameters, as JSON.")
@click.option(
    "--tolerance",
    type=Number(0, 1),
    default=0.001,
    show_default=True,
    help="How far numbers with a fraction may be apart, relative to the larger and to 1.",
)
@click.option(
    "--answers",
    type=_File,
    help="Known answers as JSON: inputs, outputs, tolerance, params; nothing is run.",
)
@as_json_option
def record(
    key: str,
    inputs: Path | None,
    params: dict[str, Any],
    tolerance: float,
    answers: Path | None,
    as_json: bool,
) -> None:
    """Runs a registered version on this machine and records its answers: workers that load it from
    then on, and get others, never serve it. They stay while it is active."""
    name, _, version = key.partition("@")
    if not name or not version:
        raise click.UsageError(f"{key!r} is no NAME@VERSION, as in x@2")
    if answers and inputs:
        raise click.UsageError("give inputs, or answers that are known: not both")
    if answers:
        known = answers.read_text(errors="replace")
    else:
        from ops.cli import known_answers  # engines take a while to import

        asked = input_lines.read(inputs) if inputs else []
        with admin_database() as database:
            model = read_version(database, name, version)
            own = defaults.load(), database, model
            known = known_answers.ask(*own, asked, params, tolerance).as_json()
    with changing() as registrar:
        change = registrar.record_probe(name, version, known)
    show_changes([(key, change)], as_json)
