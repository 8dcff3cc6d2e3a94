"""Command that fetches results."""

from pathlib import Path

import click

from jobs.states import TERMINAL
from millrace import Client
from ops.cli.commands.common import client_command, show
from ops.cli.results import writers
from ops.cli.results.writers import Target


@click.command(epilog="Example: millrace results job_01kajf… -o out.parquet")
@click.argument("id")
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False),
              help="Write them to this file, which appears once it is complete.")  # fmt: skip
@click.option(
    "--format",
    "format_",
    type=click.Choice(writers.FORMATS),
    help="Format; default: by the suffix.",
)
@click.option("--after", default=-1, help="Only results after this seq.")
@click.option("--gaps", is_flag=True, help="Skip items that have no result yet.")
@client_command
def results(
    client: Client, id: str, output: Path | None, format_: writers.Format | None, after: int,
    gaps: bool, as_json: bool,
) -> None:  # fmt: skip
    """Prints a job's results in order, as JSON lines; while it runs, those so far.

    The suffix of the file selects JSON lines, CSV (both also with .gz) or Parquet. A connection
    that breaks is resumed.
    """
    target = Target.of(output, format_)
    state = client.jobs.get(id)["state"]
    if state not in TERMINAL:
        click.echo(f"{id} is {state}: these are its results so far", err=True)
    count = target.write(client.jobs.results(id, after=after, gaps=gaps, wait=False).lines())
    if output:
        written = {"id": id, "file": str(output), "format": target.format, "results": count}
        show(written, f"{output}  {count} results", as_json)
