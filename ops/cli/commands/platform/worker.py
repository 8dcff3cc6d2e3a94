"""Command that runs a worker and its supervisor."""

import click

from jobs.telemetry import logs
from jobs.telemetry.metrics import exposition
from ops.cli.commands.admin import workers
from ops.embedded import defaults
from ops.processes.children import StopSignal, Supervisor
from ops.supervisor.worker import WatchedWorker, fork_server

WORKER_GRACE_S = 30.0  # a worker that has not stopped by then is killed


@click.group(invoke_without_command=True, commands=workers.VERBS, epilog="Example: millrace worker")
@click.pass_context
def worker(context: click.Context) -> None:
    """Runs a worker of MILLRACE_POOL on one device; starts it again if it dies, hangs or grows."""
    if context.invoked_subcommand:
        return
    settings = defaults.load()
    logs.configure("worker", settings.log_format)
    exposition.check_port(settings)
    supervised = WatchedWorker(fork_server(settings), "worker", settings)
    Supervisor([supervised]).run(StopSignal(), WORKER_GRACE_S)
