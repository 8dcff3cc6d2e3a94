"""Commands that run workers and their supervisor."""

import click

from jobs.states import PREPARE_POOL
from jobs.telemetry import logs
from jobs.telemetry.metrics import exposition
from ops.cli.commands.admin import workers
from ops.embedded import defaults
from ops.processes.children import StopSignal, Supervisor
from ops.supervisor.worker import WatchedWorker, fork_server, grace_s


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
    Supervisor([supervised]).run(StopSignal(), grace_s(settings))


@click.command(epilog="Example: millrace prepare --workers 4")
@click.option(
    "--workers",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Number of processes; a CPU each.",
)
def prepare(workers: int) -> None:
    """Runs workers that prepare items, on CPUs, of models that declare prepare = "pool"."""
    settings = defaults.load().evolve(pool=PREPARE_POOL, device="cpu")
    logs.configure("worker", settings.log_format)
    first = settings.metrics_port
    each = [settings.evolve(metrics_port=first + n if first else 0) for n in range(workers)]
    for its in each:
        exposition.check_port(its)
    server = fork_server(settings)
    Supervisor(
        [WatchedWorker(server, f"prepare-{n}", its) for n, its in enumerate(each, start=1)]
    ).run(StopSignal(), grace_s(settings))
