"""Command that runs a keeper."""

import click

from jobs.processes import startup


@click.command(epilog="Example: millrace keeper")
def keeper() -> None:
    """Runs periodic services: nudges, lapsed leases, expiry. Several may run."""
    startup.begin()

    from jobs.telemetry import logs
    from ops.embedded import defaults
    from workers.keeper.keeper import run_keeper

    settings = defaults.load()
    logs.configure("keeper", settings.log_format)
    run_keeper(settings)
