"""Commands that list, show and change jobs."""

import json
from typing import Any

import click

from jobs.states import JOB_STATES
from ops.cli.commands.common import await_end, client_command, connect, exit_by_end, show_job


@click.command("jobs", epilog="Example: millrace jobs --state running")
@click.option("--state", type=click.Choice(JOB_STATES), help="Only jobs in this state.")
@click.option("--model", help="Only jobs of this model.")
@click.option("--limit", default=20, show_default=True, help="Number of jobs.")
@click.option("--after", help="Only jobs older than this one.")
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
@click.option("--follow", is_flag=True, help="Show progress until it has ended.")
@client_command
def job(id: str, follow: bool, url: str | None, as_json: bool) -> None:
    """Shows a job. Ctrl-C while following leaves it running."""
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
        """Calls the route of that name."""
        show_job(connect(url).request("POST", f"/jobs/{id}/{name}"), as_json)

    return run


@click.command(epilog="Example: millrace delete job_01kajf…")
@click.argument("id")
@client_command
def delete(id: str, url: str | None, as_json: bool) -> None:
    """Deletes a finished job, with its items and results, for ever."""
    connect(url).delete(id)
    click.echo(json.dumps({"id": id, "deleted": True}) if as_json else f"{id}  deleted")


VERBS = (
    _verb("cancel", "Cancels a job; its results are kept."),
    _verb("pause", "Pauses a job."),
    _verb("resume", "Resumes a paused job."),
    _verb("retry", "Runs the items of a finished job again that did not succeed."),
)
COMMANDS = (list_jobs, job, *VERBS, delete)
