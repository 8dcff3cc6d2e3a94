"""The command that hands in a job: from a file, standard input or S3."""

from pathlib import Path
from typing import Any, cast

import click

from jobs.states import JOB_CLASSES
from ops import inputs, outputs
from ops.commands.common import (
    JsonObject,
    await_end,
    client_command,
    connect,
    exit_by_end,
    show_job,
)
from ops.inputs import Input
from ops.outputs import Target

_S3 = "s3://"


class _Place(click.Path):
    """A path, or an s3:// URL as it stands."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return value if value.startswith(_S3) else super().convert(value, param, ctx)


class _Seconds(click.FloatRange):
    """A number of seconds, or `never`."""

    name = "seconds|never"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return value if value == "never" else super().convert(value, param, ctx)


def _pairs(context: click.Context, parameter: click.Parameter, given: tuple[str, ...]) -> Any:
    pairs = [text.partition("=") for text in given]
    if wrong := [name for name, equals, _ in pairs if not equals]:
        raise click.BadParameter(f"{wrong[0]!r} is not NAME=VALUE")
    return {name: value for name, _, value in pairs}


@click.command(epilog="Example: millrace submit texts.jsonl --model minilm --wait -o out.parquet")
@click.argument("source", type=_Place(exists=True, dir_okay=False, readable=True, allow_dash=True))
@click.option("--model", required=True, help="name, or name@version")
@click.option("--format", "format_", type=click.Choice(inputs.FORMATS), help="not by the suffix")
@click.option("--column", default="", help="of CSV: the input")
@click.option("--id-column", default="", help="of CSV: the custom_id")
@click.option("--params", type=JsonObject(), help="the model's parameters, as a JSON object")
@click.option("--metadata", multiple=True, callback=_pairs, help="NAME=VALUE; may be repeated")
@click.option("--class", "job_class", type=click.Choice(JOB_CLASSES), help="what it may wait for")
@click.option("--priority", type=int, help="-100 to 100, higher first")
@click.option("--expires-in-s", type=_Seconds(0, min_open=True), help="`never`: best effort")
@click.option("--on-invalid", type=click.Choice(["reject", "fail_item"]), help="items with faults")
@click.option("--webhook", help="URL to tell when it has ended")
@click.option("--idempotency-key", help="the same key and input again: the job that there is")
@click.option("--wait", is_flag=True, help="show progress until it has ended")
@click.option("-o", "--output", type=_Place(dir_okay=False), help="results: a file, or s3://…")
@client_command
def submit(
    source: str, model: str, format_: inputs.Format | None, column: str, id_column: str,
    params: dict[str, Any] | None, metadata: dict[str, str], job_class: str | None,
    priority: int | None, expires_in_s: float | str | None, on_invalid: str | None,
    webhook: str | None, idempotency_key: str | None, wait: bool, output: str | None,
    url: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Submits SOURCE as one job: a file, "-" for standard input, or an object s3://bucket/key that
    the platform reads itself.

    By its suffix a file holds one item a line as JSON (.jsonl, .ndjson; standard input too), rows
    of which --column is the input (.csv), or one text a line (anything else); with .gz behind it,
    in gzip. -o waits for the end and writes the results: .jsonl, .csv or .parquet; to s3://… the
    platform writes them itself. Ctrl-C while it waits leaves the job running.
    """
    order: dict[str, Any] = {
        "model": model,
        "params": params,
        "metadata": metadata or None,
        "class": job_class,
        "priority": priority,
        "on_invalid": on_invalid,
        "webhook": {"url": webhook} if webhook else None,
        "output": _object(output, "format") if _in_s3(output) else None,
    }
    order = {name: value for name, value in order.items() if value is not None}
    if expires_in_s is not None:
        order["expires_in_s"] = None if expires_in_s == "never" else expires_in_s
    target = Target.of(Path(output)) if output and not _in_s3(output) else None
    client = connect(url)
    if _in_s3(source):
        if (format_ or inputs.format_of(source)) != "jsonl":
            raise click.UsageError("from S3 the platform reads JSON lines: .jsonl or .jsonl.gz")
        job = client.submit_order({**order, "input": _object(source)}, idempotency_key)
    else:
        given = Input(source, format_ or inputs.format_of(source), column, id_column)
        if given.format != "csv" and (column or id_column):
            raise click.UsageError("--column and --id-column are for CSV; see --format")
        job = client.submit(given.lines(), idempotency_key, **order)
    if wait or target:
        then = f"millrace results {job['id']} -o {output}" if target else ""
        job = await_end(client, job, as_json, then)
    if target:
        target.write(client.lasting_results(job["id"]))
    show_job(job, as_json)
    if wait or target:
        exit_by_end(job)


def _in_s3(place: str | None) -> bool:
    return place is not None and place.startswith(_S3)


def _object(url: str | None, *wanted: str) -> dict[str, str]:
    """What POST /jobs says of an object: by its suffix in gzip or not; wanted: `format`, too."""
    url = cast(str, url)
    found = {"url": url, "compression": "gzip" if url.endswith(".gz") else "none"}
    if "format" in wanted:
        suffix = Path(url.removesuffix(".gz")).suffix.lower()
        format_ = outputs.SUFFIXES.get(suffix)
        if format_ not in ("jsonl", "parquet"):
            raise click.UsageError(f"{url}: the platform writes .jsonl, .jsonl.gz or .parquet")
        found["format"] = format_
    return found


COMMANDS = (submit,)
