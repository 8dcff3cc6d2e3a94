"""Commands of a client: jobs and their results."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import click

from ops.commands.common import client_command, connect
from ops.progress import wait_with_bar


@click.command(epilog="Example: millrace submit texts.jsonl --model minilm --wait -o out.jsonl")
@click.argument("file", type=click.File("rb"))
@click.option("--model", required=True, help="name, or name@version")
@click.option("--params", help="the model's parameters, as a JSON object")
@click.option("--class", "job_class", help="interactive, standard or bulk")
@click.option("--priority", type=int, help="-100 to 100, higher first")
@click.option("--webhook", help="URL to tell when it has ended")
@click.option("--wait", is_flag=True, help="show progress until it has ended")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="write results here")
@client_command
def submit(
    file: BinaryIO,
    webhook: str | None,
    wait: bool,
    output: Path | None,
    url: str | None,
    as_json: bool,
    **order: Any,
) -> None:
    """Submits FILE as one job: .jsonl and .ndjson hold one item a line as JSON, anything else one
    text a line; "-" is standard input, as JSON lines."""
    client = connect(url)
    query = {name.replace("job_", ""): value for name, value in order.items() if value is not None}
    if webhook:
        query["webhook"] = json.dumps({"url": webhook})
    job = client.submit(_items(file), **query)
    if wait or output:
        job = client.wait(job["id"]) if as_json else wait_with_bar(client, job)
    if output:
        with output.open("w") as out:
            out.writelines(line + "\n" for line in client.results(job["id"]))
    _show_job(job, as_json)


class _Again:
    """The lines of a file as JSON, as often as they are asked for."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._start = file, file.tell()

    def __iter__(self) -> Iterator[bytes]:
        self._file.seek(self._start)
        return _json_lines(self._file)


def _items(file: BinaryIO) -> Iterable[bytes]:
    return _Again(file) if file.seekable() else _json_lines(file)


def _json_lines(file: BinaryIO) -> Iterator[bytes]:
    is_json = file.name.endswith((".jsonl", ".ndjson")) or file.name in ("-", "<stdin>")
    for line in file:
        text = line.rstrip(b"\r\n")
        yield (text if is_json else json.dumps(text.decode("utf-8")).encode()) + b"\n"


def _show_job(job: dict[str, Any], as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(job))
        return
    counts = ", ".join(f"{count} {name}" for name, count in job["counts"].items() if count)
    click.echo(f"{job['id']}  {job['model']}@{job['version']}  {job['state']}  {counts}")


@click.command("jobs", epilog="Example: millrace jobs --state running")
@click.option("--state", help="of this state alone")
@click.option("--model", help="of this model alone")
@click.option("--limit", default=20, show_default=True)
@client_command
def list_jobs(url: str | None, as_json: bool, **query: Any) -> None:
    """Lists jobs, the newest first."""
    params = {name: value for name, value in query.items() if value is not None}
    page = connect(url).request("GET", "/jobs", params=params)
    if as_json:
        click.echo(json.dumps(page))
        return
    for job in page["data"]:
        _show_job(job, False)


@click.command(epilog="Example: millrace job job_01kajf…")
@click.argument("id")
@client_command
def job(id: str, url: str | None, as_json: bool) -> None:
    """Shows one job."""
    _show_job(connect(url).job(id), as_json)


@click.command(epilog="Example: millrace results job_01kajf… --after 999 > rest.jsonl")
@click.argument("id")
@click.option("--after", default=-1, help="only results after this seq")
@click.option("--gaps", is_flag=True, help="past items that have no result yet")
@client_command
def results(id: str, after: int, gaps: bool, url: str | None, as_json: bool) -> None:
    """Prints a job's results in order, as JSON lines; while it runs, those that are there."""
    for line in connect(url).results(id, after=after, gaps=gaps):
        click.echo(line)


def _verb(name: str, help: str) -> click.Command:
    @click.command(name, help=help, epilog=f"Example: millrace {name} job_01kajf…")
    @click.argument("id")
    @client_command
    def run(id: str, url: str | None, as_json: bool) -> None:
        _show_job(connect(url).request("POST", f"/jobs/{id}/{name}"), as_json)

    return run


@click.command(epilog="Example: millrace delete job_01kajf…")
@click.argument("id")
@client_command
def delete(id: str, url: str | None, as_json: bool) -> None:
    """Removes a finished job, with its items and results, for ever."""
    connect(url).delete(id)
    click.echo(json.dumps({"id": id, "deleted": True}) if as_json else f"{id}  deleted")


VERBS = (
    _verb("cancel", "Cancels a job; results that are there are kept."),
    _verb("pause", "Starts nothing more of a job."),
    _verb("resume", "Goes on with a paused job."),
    _verb("retry", "Runs what did not succeed in a finished job again."),
)
COMMANDS = (submit, list_jobs, job, results, *VERBS, delete)
