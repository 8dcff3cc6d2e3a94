"""Command that serves HTTP."""

import click

from jobs.processes import startup


@click.command(epilog="Example: MILLRACE_PORT=8001 millrace api")
def api() -> None:
    """Serves HTTP; several may run."""
    startup.begin()

    from api.server import serve
    from jobs.telemetry import logs
    from ops.embedded import defaults

    settings = defaults.load()
    logs.configure("api", settings.log_format)
    serve(settings)
