"""Platforms and databases of benchmarks."""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click
from sqlalchemy import Engine

from jobs import clock
from jobs.store import db
from ops.bench.harness.errors import BenchError
from ops.supervisor.platform import Platform, running


def say(message: str) -> None:
    """Prints progress to standard error: standard output is for the last line."""
    click.echo(message, err=True)


@contextmanager
def own_platform(workers: int = 1, models: str = "", **changes: object) -> Iterator[Platform]:
    """Starts a platform in a temporary folder; both are gone afterwards, in a `scenario` on SIGTERM
    too.

    models: text of a models file; empty: the samples. changes: settings that differ.
    """
    say("starting a platform" + (f" of {workers} workers" if workers > 1 else ""))
    with tempfile.TemporaryDirectory(prefix="millrace-bench-") as folder:
        declared = Path(folder) / "models.toml" if models else None
        if declared:
            declared.write_text(models)
        with running(Path(folder), workers, models=declared, **changes) as platform:
            yield platform


def rate(name: str, items: int, seconds: Callable[[], float]) -> Callable[[int], float]:
    """Side of a comparison: a function that runs so many items, and returns them a second."""

    def measure(_: int) -> float:
        """Runs the items."""
        per_s = items / seconds()
        say(f"{name}: {per_s:.1f} items/s")
        return per_s

    return measure


def wait_until(
    is_true: Callable[[], bool], what: str, within_s: float, poll_s: float = 0.1
) -> None:
    """Polls a condition. Raises BenchError, which names it, where it isn't true in time."""
    deadline_s = clock.monotonic() + within_s
    while not is_true():
        if clock.monotonic() > deadline_s:
            raise BenchError(f"waited {within_s:g} s in vain until {what}")
        clock.sleep(poll_s)


@contextmanager
def database_of(platform: Platform) -> Iterator[Engine]:
    """Connects to a platform's database as its owner."""
    database = db.connect(platform.settings.database_url, pool_size=1)
    try:
        yield database
    finally:
        database.dispose()
