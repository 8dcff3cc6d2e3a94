"""Command that compares results, of jobs or in files."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import click

from jobs.states import TERMINAL
from millrace import Client
from ops.cli.commands.common import Number, client_command, show
from ops.cli.errors import reported
from ops.cli.results import diff as comparison
from ops.cli.results.diff import Diff, Tolerance
from ops.cli.results.files import result_lines

_DIFFERENT = 1


class _Incomparable(click.ClickException):
    exit_code = 2


class _Comparison(click.Command):
    """Exits as diff(1) does: with 2 where a comparison fails."""

    def invoke(self, ctx: click.Context) -> Any:
        """Runs the command."""
        try:
            with reported():
                return super().invoke(ctx)
        except click.ClickException as error:
            raise _Incomparable(error.message) from error


@click.command(cls=_Comparison, epilog="Example: millrace diff job_01kajf… job_01kajg… --atol 1e-6")
@click.argument("a", metavar="JOB_OR_FILE")
@click.argument("b", metavar="JOB_OR_FILE")
@click.option("--by", type=click.Choice(["custom_id", "seq"]), help="Key of results that belong "
              "together; default: custom_id, or seq without one.")  # fmt: skip
@click.option("--rtol", type=Number(0), default=0.0, show_default=True,
              help="Tolerance relative to B's numbers.")  # fmt: skip
@click.option("--atol", type=Number(0), default=0.0, show_default=True,
              help="Absolute tolerance of numbers.")  # fmt: skip
@click.option(
    "--min-cosine", type=Number(-1, 1), help="Vectors with this cosine are the same, too."
)
@click.option("--show", "shown", default=10, show_default=True,
              help="Number of differences to show.")  # fmt: skip
@client_command
def diff(
    client: Client, a: str, b: str, by: Literal["custom_id", "seq"] | None, shown: int,
    as_json: bool, **bounds: Any,
) -> None:  # fmt: skip
    """Compares the results of two finished jobs, or files of results.

    Exits with 0 if they are the same, 1 if not, 2 if they can't be compared.
    Numbers a and b are the same where |a - b| <= atol + rtol * |b|.
    """
    one, other = _Side.of(client, a), _Side.of(client, b)
    result = comparison.diff(
        one.lines,
        other.lines,
        by=by,
        tolerance=Tolerance(**bounds),
        show=shown,
    )
    value = {"a": a, "b": b, "is_same": result.is_same, **result.as_json()}
    show(value, [f"A  {one.title}", f"B  {other.title}", *_lines(result)], as_json)
    if not result.is_same:
        raise click.exceptions.Exit(_DIFFERENT)


@dataclass(frozen=True)
class _Side:
    """Results to compare, and what they are of."""

    title: str
    lines: Iterable[bytes]

    @classmethod
    def of(cls, client: Client, source: str) -> "_Side":
        """Finds a finished job, or a file where there is one of that name."""
        path = Path(source)
        if path.is_file():
            return cls(source, result_lines(path))
        if path.suffix:
            raise click.ClickException(f"there is no file {source}")
        job = client.jobs.get(source)
        if job["state"] not in TERMINAL:
            raise click.ClickException(
                f"{source} is {job['state']}: its results are not all there yet"
            )
        title = f"{job['id']}  {job['model']}@{job['version']}  {job['counts']['total']} items"
        return cls(title, client.jobs.results(source).lines())


def _lines(result: Diff) -> Iterator[str]:
    counts = f"{result.same} same, {result.changed} changed"
    yield f"{counts}, {result.only_a} only in A, {result.only_b} only in B"
    for (a, b), count in result.outcomes.most_common():
        yield f"{count} {a} in A, {b} in B"
    if result.max_abs_diff is not None:
        yield f"numbers differ by {result.max_abs_diff:g} at most"
    if result.min_cosine is not None:
        yield f"cosine of vectors: {result.min_cosine:.9g} at least"
    for one in result.shown:
        a, b = (one[side] if one[side] is not None else "-" for side in ("a", "b"))
        yield f"  {one['item']}: {a} | {b}"
    hidden = result.changed + result.only_a + result.only_b - len(result.shown)
    if hidden:
        yield f"  … and {hidden} more"
