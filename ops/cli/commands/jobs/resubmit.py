"""Command that submits the items of a job again, as a new one."""

from typing import Any

import click

from jobs.states import JOB_CLASSES
from ops.cli.commands.common import JsonObject, client_command, pairs
from ops.cli.commands.jobs.jobs import await_end, show_ended_job, show_job
from ops.client import Client


@click.command(epilog="Example: millrace resubmit job_01kajf… --unsuccessful --model minilm")
@click.argument("id")
@click.option("--unsuccessful", is_flag=True, help="Only items that did not succeed.")
@click.option("--model", help="Name, or name@version; default: that job's version.")
@click.option("--params", type=JsonObject(), help="Parameters of the model, a JSON object.")
@click.option("--metadata", multiple=True, callback=pairs, help="NAME=VALUE; may be repeated.")
@click.option("--name", help="Name to find the job by.")
@click.option(
    "--label",
    "labels",
    multiple=True,
    callback=pairs,
    help="NAME=VALUE to find the job by; may be repeated.",
)
@click.option("--class", "class", type=click.Choice(JOB_CLASSES), help="Scheduling class.")
@click.option("--priority", type=int, help="-100 to 100, higher first.")
@click.option("--on-invalid", type=click.Choice(["reject", "fail_item"]), help="Invalid items.")
@click.option("--idempotency-key", help="Repeating key and terms returns the same job.")
@click.option("--wait", is_flag=True, help="Show progress until it has ended.")
@client_command
def resubmit(
    client: Client, id: str, unsuccessful: bool, idempotency_key: str | None, wait: bool,
    as_json: bool, **terms: Any,
) -> None:  # fmt: skip
    """Submits the items of a job again, as a new job.

    Terms that are not given are those of that job; its id is in the new job's metadata
    (resubmitted_from).
    """
    given = {name: value for name, value in terms.items() if value not in (None, {})}
    items = "unsuccessful" if unsuccessful else "all"
    job = client.jobs.resubmit(id, idempotency_key=idempotency_key, items=items, **given)
    if wait:
        show_ended_job(await_end(client, job, as_json), as_json)
    else:
        show_job(job, as_json)
