"""Commands of a client: jobs, and what can be done to them."""

import json
from typing import Any

import click

from jobs.states import JOB_STATES
from ops.cli.commands.common import await_end, client_command, connect, exit_by_end, show_job


@click.command("jobs", epilog="Example: millrace jobs --state running")
@click.option("--state", type=click.Choice(JOB_STATES), help="of this state alone")
@click.option("--model", help="of this model alone")
@click.option("--limit", default=20, show_default=True)
@click.option("--after", help="older than this job")
@client_command
def list_jobs(url: str | None, as_json: bool, **query: Any) -> None:
    """Lists jobs, the newest first."""
    params = {name: value for name, value in query.items() if value is not None}
    page = connect(url).request("GET", "/jobs", params=params)
    if as_json:
        click.echo(json.dumps(page))
        return
    for job in page["data"]:
        show_job(job, False)
    if page["next"]:
        click.echo(f"there are more: --after {page['next']}", err=True)


@click.command(epilog="Example: millrace job job_01kajf… --follow")
@click.argument("id")
@click.option("--follow", is_flag=True, help="show progress until it has ended")
@client_command
def job(id: str, follow: bool, url: str | None, as_json: bool) -> None:
    """Shows one job. Ctrl-C while it is followed leaves it running."""
    client = connect(url)
    found = client.job(id)
    if follow:
        found = await_end(client, found, as_json)
    show_job(found, as_json)
    if follow:
        exit_by_end(found)


def _verb(name: str, help: str) -> click.Command:
    @click.command(name, help=help, epilog=f"Example: millrace {name} job_01kajf…")
    @click.argument("id")
    @client_command
    def run(id: str, url: str | None, as_json: bool) -> None:
        show_job(connect(url).request("POST", f"/jobs/{id}/{name}"), as_json)

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
COMMANDS = (list_jobs, job, *VERBS, delete)
