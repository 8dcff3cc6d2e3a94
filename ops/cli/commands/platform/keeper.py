"""Command that runs a keeper."""

import click

from jobs.telemetry import logs
from ops.embedded import defaults
from workers.keeper.keeper import run_keeper


@click.command(epilog="Example: millrace keeper")
def keeper() -> None:
    """Runs periodic services: nudges, lapsed leases, expiry. Several may run."""
    settings = defaults.load()
    logs.configure("keeper", settings.log_format)
    run_keeper(settings)
