"""Command that submits a job from a file, standard input or S3."""

import sys
from pathlib import Path
from typing import Any, TypeGuard

import click

from jobs.intake import formats
from millrace import Client
from millrace.inputs import readers
from millrace.inputs.files import STDIN, Input
from ops.cli.commands.common import client_command
from ops.cli.commands.jobs.jobs import await_end, show_ended_job, show_job
from ops.cli.commands.jobs.terms import given_terms, term_options
from ops.cli.results.writers import Target

_S3 = "s3://"
_READ_AS = {
    "jsonl": "JSON lines, an item each; --format json takes the elements of a list, text any lines",
    "json": "a JSON document, its elements as items; --format jsonl takes lines, text any lines",
    "text": "texts, a line each; --format jsonl takes items as JSON",
}
_S3_FORMATS = {
    "jsonl": {"format": "jsonl", "compression": "none"},
    "jsonl.gz": {"format": "jsonl", "compression": "gzip"},
    "parquet": {"format": "parquet", "compression": "none"},
}


class _PathOrUrl(click.Path):
    """Path, or an s3:// URL."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Parses an argument."""
        return value if value.startswith(_S3) else super().convert(value, param, ctx)


@click.command(epilog="Example: millrace submit texts.jsonl --model minilm --wait -o out.parquet")
@click.argument(
    "sources", nargs=-1, required=True,
    type=_PathOrUrl(exists=True, readable=True, allow_dash=True),
)  # fmt: skip
@click.option("--model", required=True, help="Name, or name@version.")
@click.option(
    "--format",
    "format_",
    type=click.Choice(readers.FORMATS),
    help="Format; default: by the suffix, of standard input guessed.",
)
@click.option("--column", default="", help="Input column of CSV, Parquet or objects.")
@click.option("--id-column", default="", help="Column with the custom_id.")
@term_options
@click.option("--idempotency-key", help="Repeating key and input returns the same job.")
@click.option("--wait", is_flag=True, help="Show progress until it has ended.")
@click.option(
    "-o", "--output", type=_PathOrUrl(dir_okay=False), help="File of the results, or s3://…/."
)
@click.option(
    "--output-format", type=click.Choice(list(_S3_FORMATS)), help="Format of results in S3."
)
@client_command
def submit(
    client: Client, sources: tuple[str, ...], format_: readers.Format | None, column: str,
    id_column: str, idempotency_key: str | None, wait: bool, output: str | None,
    output_format: str | None, as_json: bool, **terms: Any,
) -> None:  # fmt: skip
    """Submits SOURCES as one job: files, folders, standard input or S3.

    They are paths, "-" for standard input, or s3://bucket/key. Files of a folder are read in the
    order of their names, without empty ones and those that begin with "_" or "."; objects in S3,
    and folders of them (s3://bucket/prefix/), by the platform itself.

    The suffix selects one item a line as JSON (.jsonl, .ndjson), a list of items (.json), rows with
    the input in --column (.csv), or one text a line (anything else), each also with .gz; rows of
    .parquet likewise. What standard input is (.jsonl, .json or texts) is guessed, and said.
    -o waits for the end and writes the results: .jsonl, .csv or .parquet. Below an
    s3://bucket/prefix/ the platform writes them itself. Ctrl-C leaves the job running.
    """
    order, target = given_terms(terms), None
    if _in_s3(output):
        order["output"] = _target_in_s3(output, output_format)
    elif output_format:
        raise click.UsageError("--output-format is for S3; a file's suffix says it")
    elif output:
        target = Target.of(Path(output))
    if any(map(_in_s3, sources)):
        order["input"] = _source_in_s3(sources, format_, column, id_column)
        job = client.jobs.create(idempotency_key=idempotency_key, **order)
    else:
        lines = _input(sources, format_, column, id_column).lines()
        model = order.pop("model")
        job = client.jobs.submit(model, lines, idempotency_key=idempotency_key, **order)
    if not (wait or target):
        show_job(job, as_json)
        return
    then = f"millrace results {job['id']} -o {output}" if target else ""
    job = await_end(client, job, as_json, then)
    if target:
        target.write(client.jobs.results(job["id"]).lines())
    show_ended_job(job, as_json)


def _in_s3(place: str | None) -> TypeGuard[str]:
    return place is not None and place.startswith(_S3)


def _input(
    sources: tuple[str, ...], format_: readers.Format | None, column: str, id_column: str
) -> Input:
    """Returns the items of files on this machine, or of standard input."""
    if STDIN not in sources:
        return Input(sources, format_, column, id_column)
    if len(sources) > 1:
        raise click.UsageError("standard input is read alone")
    if format_ is None and not (column or id_column):
        return _guessed_stdin()
    return Input(STDIN, format_, column, id_column)


def _guessed_stdin() -> Input:
    """Reads standard input in the format that it seems to have, and says which."""
    head = formats.read_head(sys.stdin.buffer)
    format_ = formats.guess(head)
    click.echo(f"standard input is read as {_READ_AS[format_]}", err=True)
    return Input(STDIN, format_, head=head)


def _source_in_s3(
    urls: tuple[str, ...], format_: readers.Format | None, column: str, id_column: str
) -> dict[str, Any]:
    """Input object; the platform infers a missing format from the name."""
    if not all(map(_in_s3, urls)):
        raise click.UsageError("the platform reads objects in S3, not files of this machine: give "
                               "one kind")  # fmt: skip
    place = {"url": urls[0]} if len(urls) == 1 else {"urls": list(urls)}
    more = {"format": format_, "column": column, "id_column": id_column}
    return place | {name: value for name, value in more.items() if value}


def _target_in_s3(folder: str, format_: str | None) -> dict[str, str]:
    if Path(folder).suffix:
        why = "results go into a folder of the job, below a prefix: s3://bucket/prefix/"
        raise click.UsageError(f"{folder}: {why}; --output-format says what they are")
    return {"url": folder, **_S3_FORMATS[format_ or "jsonl"]}
