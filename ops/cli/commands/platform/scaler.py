"""Command that runs a scaler."""

import click

from jobs.processes import startup


@click.command(epilog="Example: millrace scaler")
def scaler() -> None:
    """Scales Deployments and StatefulSets in Kubernetes as the autoscaler decides. Several may run:
    one acts."""
    startup.begin()

    from jobs.telemetry import logs
    from ops.embedded import defaults
    from workers.scaler.scaler import run_scaler

    settings = defaults.load()
    logs.configure("scaler", settings.log_format)
    run_scaler(settings)
