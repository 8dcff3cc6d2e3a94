"""Plain Celery as a baseline: a task an item, two processes.

Without results it stands beside the durable path; with results in PostgreSQL beside small jobs.
`python -m ops.bench.baselines.celery_task_per_item BROKER FILE RESULTS` is its worker; each task
adds a byte to the file. RESULTS: SQLAlchemy's URL of a database; empty: results are not stored.
"""

import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial

import psycopg
from celery import Celery

from jobs import clock
from jobs.store import db
from ops.bench.harness.child_process import child
from ops.bench.harness.platform import wait_until

_TASK = "plain.echo"
_WARM_UP = 20
_POLL_S = 0.005
_STALLED_S = 120.0
_STORED = "SELECT count(*) FROM celery_taskmeta WHERE status = 'SUCCESS'"


def _app(broker: str, results: str) -> Celery:
    """App with Celery's defaults, but for the results."""
    return Celery(
        "plain", broker=broker, backend=f"db+{results}" if results else None,
        task_ignore_result=not results, task_default_queue="results" if results else "plain",
        broker_connection_retry_on_startup=True, worker_hijack_root_logger=False,
    )  # fmt: skip


@contextmanager
def plain_celery(broker: str, results: str = "") -> Iterator[Callable[[int], float]]:
    """Starts the worker. Yields a function that runs so many tasks, in seconds.

    They count from the first task published to the last one executed or, where `results` is the URL
    of a database, to the last result stored there.
    """
    with tempfile.NamedTemporaryFile() as done, _app(broker, results) as app:

        def run(ended: Callable[[], int], items: int) -> float:
            """Runs tasks. ended: counts those that have ended."""
            wanted, since_s = ended() + items, clock.monotonic()
            for n in range(items):
                app.send_task(_TASK, [f"item {n}"])
            what = f"plain Celery runs {items} tasks"
            wait_until(lambda: ended() >= wanted, what, _STALLED_S, _POLL_S)
            return clock.monotonic() - since_s

        def executed() -> int:
            """Counts tasks that were executed."""
            return os.stat(done.name).st_size

        with child("ops.bench.baselines.celery_task_per_item", broker, done.name, results):
            run(executed, _WARM_UP)
            if not results:
                yield partial(run, executed)
                return
            with closing(psycopg.connect(db.plain_url(results), autocommit=True)) as connection:

                def stored() -> int:
                    """Counts results that were stored."""
                    return int(connection.execute(_STORED).fetchall()[0][0])

                run(stored, _WARM_UP)
                yield partial(run, stored)


def _main(broker: str, done: str, results: str) -> None:
    app = _app(broker, results)
    file = os.open(done, os.O_WRONLY | os.O_APPEND)

    @app.task(name=_TASK)  # type: ignore[untyped-decorator]
    def echo(text: str) -> str:
        """Adds a byte to the file."""
        os.write(file, b".")
        return text

    app.Worker(pool="prefork", concurrency=2, quiet=True).start()


if __name__ == "__main__":
    _main(*sys.argv[1:])
