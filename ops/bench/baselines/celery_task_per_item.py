"""Plain Celery as a baseline of the durable path: a task an item, no results, two processes.

`python -m ops.bench.baselines.celery_task_per_item BROKER FILE` is its worker; each task adds a
byte to the file.
"""

import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from celery import Celery

from jobs import clock
from ops.bench.harness.child_process import child
from ops.bench.harness.platform import wait_until

_TASK, _QUEUE = "plain.echo", "plain"
_WARM_UP = 20
_POLL_S = 0.005
_STALLED_S = 120.0


def _app(broker: str) -> Celery:
    """App with Celery's defaults, but without results."""
    return Celery(
        "plain", broker=broker, task_ignore_result=True, task_default_queue=_QUEUE,
        broker_connection_retry_on_startup=True, worker_hijack_root_logger=False,
    )  # fmt: skip


@contextmanager
def plain_celery(broker: str) -> Iterator[Callable[[int], float]]:
    """Starts the worker. Yields a function that runs so many tasks, in seconds.

    They count from the first task published to the last one executed.
    """
    with tempfile.NamedTemporaryFile() as done, _app(broker) as app:

        def seconds(items: int) -> float:
            """Runs tasks."""
            size, since_s = os.stat(done.name).st_size + items, clock.monotonic()
            for n in range(items):
                app.send_task(_TASK, [f"item {n}"])
            what = f"plain Celery runs {items} tasks"
            wait_until(lambda: os.stat(done.name).st_size >= size, what, _STALLED_S, _POLL_S)
            return clock.monotonic() - since_s

        with child("ops.bench.baselines.celery_task_per_item", broker, done.name):
            seconds(_WARM_UP)
            yield seconds


def _main(broker: str, done: str) -> None:
    app = _app(broker)
    file = os.open(done, os.O_WRONLY | os.O_APPEND)

    @app.task(name=_TASK)  # type: ignore[untyped-decorator]
    def echo(text: str) -> str:
        """Adds a byte to the file."""
        os.write(file, b".")
        return text

    app.Worker(pool="prefork", concurrency=2, quiet=True).start()


if __name__ == "__main__":
    _main(*sys.argv[1:])
