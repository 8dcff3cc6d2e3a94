"""Commands that list, show and change jobs."""

from typing import Any

import click

from jobs.states import JOB_STATES
from millrace import Client, Job
from ops.cli.commands.common import client_command, pairs, show, show_list
from ops.cli.errors import INTERRUPTED

_NONE = "no jobs yet; submit one: millrace submit FILE --model NAME (`millrace models` lists them)"
_NONE_SUCH = "no such jobs; `millrace jobs` lists all"


@click.command(epilog="Example: millrace jobs --state running --label team=search")
@click.option("--state", type=click.Choice(JOB_STATES), help="Only jobs in this state.")
@click.option("--model", help="Only jobs of this model.")
@click.option("--name", help="Only jobs with this in their name, in any case.")
@click.option(
    "--label", multiple=True, callback=pairs, help="NAME=VALUE; may be repeated: jobs with all."
)
@click.option("--tenant", help="Another tenant, or * for all (operators).")
@click.option("--limit", default=20, show_default=True, help="Number of jobs.")
@click.option("--after", help="Only jobs older than this one.")
@client_command
def jobs(client: Client, as_json: bool, label: dict[str, str], **query: Any) -> None:
    """Lists jobs, the newest first."""
    page = client.get("/jobs", label=[f"{key}:{value}" for key, value in label.items()], **query)
    asked = label or any(query[name] for name in ("state", "model", "name", "tenant", "after"))
    show_list(page, map(_line, page["data"]), as_json, _NONE_SUCH if asked else _NONE)
    if page["next"] and not as_json:
        click.echo(f"there are more: --after {page['next']}", err=True)


@click.command(epilog="Example: millrace job job_01kajf… --follow")
@click.argument("id")
@click.option("--follow", is_flag=True, help="Show progress until it has ended.")
@client_command
def job(client: Client, id: str, follow: bool, as_json: bool) -> None:
    """Shows a job. Ctrl-C while following leaves it running."""
    state = client.jobs.get(id)
    if follow:
        show_ended_job(await_end(client, state, as_json), as_json)
    else:
        show_job(state, as_json)


def _verb(name: str, help: str) -> click.Command:
    @click.command(name, help=help, epilog=f"Example: millrace {name} job_01kajf…")
    @click.argument("id")
    @client_command
    def run(client: Client, id: str, as_json: bool) -> None:
        """Calls the method of that name."""
        show_job(getattr(client.jobs, name)(id), as_json)

    return run


cancel = _verb("cancel", "Cancels a job; its results are kept.")
pause = _verb("pause", "Pauses a job.")
resume = _verb("resume", "Resumes a paused job.")
retry = _verb("retry", "Runs the items of a finished job again that did not succeed.")


@click.command(epilog="Example: millrace delete job_01kajf…")
@click.argument("id")
@client_command
def delete(client: Client, id: str, as_json: bool) -> None:
    """Deletes a finished job, with its items and results, for ever."""
    client.jobs.delete(id)
    show({"id": id, "deleted": True}, f"{id}  deleted", as_json)


def await_end(client: Client, job: Job, as_json: bool, then: str = "") -> Job:
    """Waits for a job's end, with a progress bar unless JSON is printed.

    Ctrl-C leaves the job running. then: command to suggest after it.
    """
    try:
        return client.jobs.wait(job["id"], progress=not as_json)
    except KeyboardInterrupt:
        back = " && ".join(filter(None, (f"millrace job {job['id']} --follow", then)))
        click.echo(f"\n{job['id']} goes on without you; come back with `{back}`", err=True)
        raise click.exceptions.Exit(INTERRUPTED) from None


def show_job(job: dict[str, Any], as_json: bool) -> None:
    """Prints a job as a line or as JSON."""
    show(job, _line(job), as_json)


def show_ended_job(job: dict[str, Any], as_json: bool) -> None:
    """Prints a job; exits with 1 unless it completed and could write its results."""
    show_job(job, as_json)
    if job["state"] != "completed" or (job.get("output") or {}).get("state") == "failed":
        raise click.exceptions.Exit(1)


def _line(job: dict[str, Any]) -> str:
    counts = ", ".join(f"{count} {name}" for name, count in job["counts"].items() if count)
    if cut := job.get("truncated"):
        counts += f", {cut} of them truncated"
    labels = " ".join(f"{key}={value}" for key, value in (job.get("labels") or {}).items())
    words = [
        job["id"],
        job.get("name"),
        labels,
        f"{job['model']}@{job['version']}",
        job["state"],
        counts,
        _pace(job),
    ]
    output = job.get("output") or {}
    if output.get("url"):
        words.append(f"{output['url']} {output['state']}")
    errors = filter(None, (job["error"], output.get("error")))
    words += [str(error.get("message") or error) for error in errors]
    return "  ".join(filter(None, words))


def _pace(job: dict[str, Any]) -> str:
    rate, eta_s = job["progress"]["items_per_s"], job["progress"]["eta_s"]
    if not rate:
        return ""
    left = f", {eta_s[0]:.0f} to {eta_s[1]:.0f} s left" if eta_s else ""
    return f"{rate:g} items/s{left}"
