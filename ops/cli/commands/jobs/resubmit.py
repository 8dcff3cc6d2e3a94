"""Command that submits the items of a job again, as a new one."""

from typing import Any

import click

from millrace import Client
from ops.cli.commands.common import client_command
from ops.cli.commands.jobs.jobs import await_end, show_ended_job, show_job
from ops.cli.commands.jobs.terms import given_terms, term_options


@click.command(epilog="Example: millrace resubmit job_01kajf… --unsuccessful --model minilm")
@click.argument("id")
@click.option("--unsuccessful", is_flag=True, help="Only items that did not succeed.")
@click.option("--model", help="Name, or name@version; default: that job's version.")
@term_options
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
    items = "unsuccessful" if unsuccessful else "all"
    job = client.jobs.resubmit(
        id, idempotency_key=idempotency_key, items=items, **given_terms(terms)
    )
    if wait:
        show_ended_job(await_end(client, job, as_json), as_json)
    else:
        show_job(job, as_json)
