"""Commands that fetch and compare results."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from jobs.states import TERMINAL
from ops.cli.commands.common import Number, client_command, connect, in_words
from ops.client import writers
from ops.client.client import Client
from ops.client.writers import Target

if TYPE_CHECKING:
    from ops.client.diff import Diff

_SAME, _DIFFERENT = 0, 1


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
    id: str, output: Path | None, format_: writers.Format | None, after: int, gaps: bool,
    url: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Prints a job's results in order, as JSON lines; while it runs, those so far.

    The suffix of the file selects JSON lines, CSV (both also with .gz) or Parquet. A connection
    that breaks is resumed.
    """
    target, client = Target.of(output, format_), connect(url)
    state = client.job(id)["state"]
    if state not in TERMINAL:
        click.echo(f"{id} is {state}: these are its results so far", err=True)
    count = target.write(client.resumable_results(id, after, gaps))
    if output:
        shown = {"id": id, "file": str(output), "format": target.format, "results": count}
        click.echo(json.dumps(shown) if as_json else f"{output}  {count} results")


class _Incomparable(click.ClickException):
    exit_code = 2


class _Comparison(click.Command):
    """Exits as diff(1) does: with 2 where a comparison fails."""

    def invoke(self, ctx: click.Context) -> Any:
        """Runs the command."""
        try:
            return super().invoke(ctx)
        except Exception as error:
            message = in_words(error)
            if message is None:
                raise
            raise _Incomparable(message) from error


@click.command(
    "diff", cls=_Comparison, epilog="Example: millrace diff job_01kajf… job_01kajg… --atol 1e-6"
)
@click.argument("job_a")
@click.argument("job_b")
@click.option("--by", type=click.Choice(["custom_id", "seq"]), help="Key of results that belong "
              "together; default: custom_id, or seq without one.")  # fmt: skip
@click.option(
    "--rtol",
    type=Number(0),
    default=0.0,
    show_default=True,
    help="Tolerance relative to B's numbers.",
)
@click.option(
    "--atol", type=Number(0), default=0.0, show_default=True, help="Absolute tolerance of numbers."
)
@click.option(
    "--min-cosine", type=Number(-1, 1), help="Vectors with this cosine are the same, too."
)
@click.option("--show", default=10, show_default=True, help="Number of differences to show.")
@client_command
def compare(
    job_a: str, job_b: str, by: Literal["custom_id", "seq"] | None, rtol: float, atol: float,
    min_cosine: float | None, show: int, url: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Compares the results of two finished jobs.

    Exits with 0 if they are the same, 1 if not, 2 if they can't be compared.
    Numbers a and b are the same where |a - b| <= atol + rtol * |b|.
    """
    from ops.client.diff import Tolerance, diff  # with NumPy

    client = connect(url)
    a, b = (_finished(client, id) for id in (job_a, job_b))
    found = diff(
        client.resumable_results(job_a),
        client.resumable_results(job_b),
        by=by,
        tolerance=Tolerance(rtol, atol, min_cosine),
        show=show,
    )
    if as_json:
        shown = {"a": a["id"], "b": b["id"], "is_same": found.is_same, **found.as_json()}
        click.echo(json.dumps(shown))
    else:
        click.echo("\n".join([_side("A", a), _side("B", b), *_words(found)]))
    raise click.exceptions.Exit(_SAME if found.is_same else _DIFFERENT)


def _finished(client: Client, id: str) -> dict[str, Any]:
    job = client.job(id)
    if job["state"] in TERMINAL:
        return job
    raise _Incomparable(f"{id} is {job['state']}: its results are not all there yet")


def _side(name: str, job: dict[str, Any]) -> str:
    return f"{name}  {job['id']}  {job['model']}@{job['version']}  {job['counts']['total']} items"


def _words(found: "Diff") -> list[str]:
    counts = f"{found.same} same, {found.changed} changed"
    lines = [f"{counts}, {found.only_a} only in A, {found.only_b} only in B"]
    for (a, b), count in found.outcomes.most_common():
        lines.append(f"{count} {a} in A, {b} in B")
    if found.max_abs_diff is not None:
        lines.append(f"numbers differ by {found.max_abs_diff:g} at most")
    if found.min_cosine is not None:
        lines.append(f"cosine of vectors: {found.min_cosine:.9g} at least")
    for one in found.shown:
        a, b = (one[side] if one[side] is not None else "-" for side in ("a", "b"))
        lines.append(f"  {one['item']}: {a} | {b}")
    hidden = found.changed + found.only_a + found.only_b - len(found.shown)
    return [*lines, f"  … and {hidden} more"] if hidden else lines


COMMANDS = (results, compare)
