"""Command that serves HTTP."""

import click

from api.server import serve
from jobs.telemetry import logs
from ops.embedded import defaults


@click.command(epilog="Example: MILLRACE_PORT=8001 millrace api")
def api() -> None:
    """Serves HTTP; several may run."""
    settings = defaults.load()
    logs.configure("api", settings.log_format)
    serve(settings)
