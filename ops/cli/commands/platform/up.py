"""Command that runs the whole platform."""

import os

import click

from jobs import settings
from jobs.models.engines import extras
from jobs.models.watcher import ModelsFile
from jobs.telemetry import logs
from ops.cli.commands.common import as_json_option, show
from ops.processes.children import StopSignal
from ops.supervisor.platform import Platform


@click.command(epilog="Example: millrace up --workers 2")
@click.option(
    "--workers",
    type=click.IntRange(0),
    default=1,
    show_default=True,
    help="Number of worker processes.",
)
@click.option(
    "--max-workers",
    type=click.IntRange(0),
    default=0,
    help="Up to which the autoscaler may have; default: it has no say.",
)
@click.option(
    "--prepare-workers",
    type=click.IntRange(0),
    help='Number of workers that prepare; default: 1 where a model declares prepare = "pool".',
)
@click.option(
    "--apis",
    type=click.IntRange(1),
    help="Number of api processes, which share the port; default: one for each two cores.",
)
@click.option(
    "--max-apis",
    type=click.IntRange(0),
    default=0,
    help="Up to which the autoscaler may have; likewise.",
)
@as_json_option
def up(
    workers: int, max_workers: int, prepare_workers: int | None, apis: int | None, max_apis: int,
    as_json: bool,
) -> None:  # fmt: skip
    """Runs everything: embedded services, migrations, apis, keeper, workers. Ctrl-C stops it."""
    apis = apis or _usual_apis(max_apis)
    _check_most("workers", workers, max_workers)
    _check_most("apis", apis, max_apis)
    configured = settings.load()
    logs.configure("up", configured.log_format)
    for line in extras.unserved(ModelsFile(configured.models).models):
        click.echo(line, err=True)
    stop_requested = StopSignal()
    platform = Platform(
        configured,
        workers,
        most_workers=max_workers,
        prepare_workers=prepare_workers,
        apis=apis,
        most_apis=max_apis,
    )
    platform.start(stop_requested)
    if not stop_requested():
        _show_addresses(platform, as_json)
    try:
        platform.run(stop_requested)
    finally:
        click.echo("stopping", err=as_json)
        platform.stop()


def _usual_apis(most: int) -> int:
    """Returns one for each two cores, within what the autoscaler may have; most: 0: no say."""
    usual = max(1, len(os.sched_getaffinity(0)) // 2)
    return min(usual, most) if most else usual


def _check_most(kind: str, count: int, most: int) -> None:
    """Refuses a bound below what is started. most: 0: none."""
    if 0 < most < count:
        raise click.UsageError(
            f"--max-{kind} {most} is below --{kind} {count}: the autoscaler may have at least what "
            f"is started; raise --max-{kind}, or leave it out for a fixed number"
        )


def _show_addresses(platform: Platform, as_json: bool) -> None:
    url = platform.url
    pages = {"dashboard": f"{url}/dashboard", "docs": f"{url}/docs"}
    lines = [
        f"ready: {url}; Ctrl-C stops it",
        f"dashboard: {pages['dashboard']}",
        f"API docs: {pages['docs']}",
    ]
    if platform.metrics:
        lines.append(f"metrics: {' '.join(platform.metrics)}")
    show({"ready": True, "url": url, **pages, "metrics": platform.metrics}, lines, as_json)
