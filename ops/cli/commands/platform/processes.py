"""Commands that run, prepare and check processes."""

import json
import sys

import click

from jobs.settings import SettingsError
from jobs.telemetry import logs
from ops.cli.commands.common import as_json_option
from ops.embedded import defaults

WORKER_GRACE_S = 30.0  # a worker that has not stopped by then is killed


@click.command(epilog="Example: millrace up --workers 2")
@click.option("--workers", default=1, show_default=True, help="Number of worker processes.")
@as_json_option
def up(workers: int, as_json: bool) -> None:
    """Runs everything: embedded services, migrations, api, keeper, workers. Ctrl-C stops it."""
    from jobs import settings
    from ops.supervisor.platform import Platform, StopSignal

    found = settings.load()
    logs.configure("up", found.log_format)
    stop_requested = StopSignal()
    platform = Platform(found, workers)
    platform.start(stop_requested)
    if not stop_requested():
        docs, dashboard = f"{platform.url}/docs", f"{platform.url}/dashboard"
        shown = json.dumps(
            {
                "ready": True,
                "url": platform.url,
                "dashboard": dashboard,
                "docs": docs,
                "metrics": platform.metrics,
            }
        )
        words = f"ready: {platform.url}; Ctrl-C stops it\ndashboard: {dashboard}\nAPI docs: {docs}"
        if platform.metrics:
            words += f"\nmetrics: {' '.join(platform.metrics)}"
        click.echo(shown if as_json else words)
    try:
        platform.run(stop_requested)
    finally:
        click.echo("stopping", err=as_json)
        platform.stop()


@click.command(epilog="Example: MILLRACE_PORT=8001 millrace api")
def api() -> None:
    """Serves HTTP; several may run."""
    from api.server import serve

    found = defaults.load()
    logs.configure("api", found.log_format)
    serve(found)


@click.group(invoke_without_command=True, epilog="Example: millrace worker")
@click.pass_context
def worker(context: click.Context) -> None:
    """Runs a worker of MILLRACE_POOL on one device; starts it again if it dies, hangs or grows."""
    if context.invoked_subcommand:
        return
    from jobs.telemetry.metrics import exposition
    from ops.processes.children import Supervisor
    from ops.supervisor.platform import StopSignal
    from ops.supervisor.worker import WatchedWorker

    found = defaults.load()
    logs.configure("worker", found.log_format)
    exposition.check_port(found)
    Supervisor([WatchedWorker("worker", found)]).run(StopSignal(), WORKER_GRACE_S)


@click.command(epilog="Example: millrace keeper")
def keeper() -> None:
    """Runs periodic services: nudges, lapsed leases, expiry. Several may run."""
    from workers.keeper.keeper import run_keeper

    found = defaults.load()
    logs.configure("keeper", found.log_format)
    run_keeper(found)


@click.command(epilog="Example: millrace migrate")
@as_json_option
def migrate(as_json: bool) -> None:
    """Brings the database's schema up to date. Safe to repeat, and to run several at once."""
    from jobs.store import db
    from migrations.run import migrate as run

    run(db.connect(defaults.load().database_url, pool_size=1))
    click.echo(json.dumps({"up_to_date": True}) if as_json else "the database is up to date")


@click.command(epilog="Example: millrace check --json")
@click.option("--invariants", is_flag=True, help="Check the invariants of the database.")
@as_json_option
def check(invariants: bool, as_json: bool) -> None:
    """Shows the configuration and all its problems."""
    from ops.cli import check as checks

    if invariants:
        sys.exit(_check_invariants(as_json))
    wrong = checks.problems()
    findings = [] if wrong else list(checks.setting_values(defaults.load()))
    if as_json:
        values = {finding.name: finding.value for finding in findings}
        click.echo(json.dumps({"problems": wrong, "settings": values}))
    else:
        for finding in findings:
            click.echo(f"{finding.name:30} {finding.value or '-':40} {finding.help}")
        for problem in wrong:
            click.echo(f"problem: {problem}", err=True)
    sys.exit(1 if wrong else 0)


def _check_invariants(as_json: bool) -> int:
    """Prints each invariant and its violations; returns the exit status."""
    from ops.cli import check as checks

    wrong = checks.problems()
    if wrong:
        raise SettingsError(wrong)
    found = list(checks.broken(defaults.load()))
    if as_json:
        rows = [checks.as_json(invariant, broken) for invariant, broken in found]
        click.echo(json.dumps({"holds": not any(b for _, b in found), "invariants": rows}))
    else:
        for invariant, broken in found:
            click.echo("\n".join(checks.lines(invariant, broken)))
    return int(any(broken for _, broken in found))


COMMANDS = (up, api, worker, keeper, migrate, check)
