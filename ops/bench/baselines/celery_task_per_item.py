"""Plain Celery, as the durable path's rival: one task an item, no result stored, two processes.
`… -m ops.bench.plain_celery BROKER FILE` is its worker; each task adds a byte to the file."""

import os
import subprocess
import sys
import tempfile
from signal import SIGTERM
from types import TracebackType

from celery import Celery

from jobs import clock
from ops.bench.harness.platform import BenchError
from ops.processes.children import die_with_parent

_TASK, _QUEUE = "plain.echo", "plain"
_WARM_UP = 20
_LOOK_S = 0.005
_STALLED_S = 120.0


def _app(broker: str) -> Celery:
    """Celery's defaults, but for results that nobody asked for."""
    app = Celery("plain", broker=broker)
    app.conf.update(
        task_ignore_result=True,
        task_default_queue=_QUEUE,
        broker_connection_retry_on_startup=True,
        worker_hijack_root_logger=False,
    )
    return app


class PlainCelery:
    """That worker, as the benchmark sees it. It waits for us without using the CPU."""

    def __init__(self, broker: str) -> None:
        self._app = _app(broker)
        self._done = tempfile.NamedTemporaryFile()  # noqa: SIM115
        command = [
            sys.executable,
            "-m",
            "ops.bench.baselines.celery_task_per_item",
            broker,
            self._done.name,
        ]
        self._process = subprocess.Popen(
            die_with_parent(command, SIGTERM),
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )

    def seconds(self, items: int) -> float:
        """From the first task published to the last one executed."""
        before, since_s = self._size(), clock.monotonic()
        for n in range(items):
            self._app.send_task(_TASK, [f"item {n}"])
        while self._size() < before + items:
            if clock.monotonic() > since_s + _STALLED_S:
                raise BenchError(f"plain Celery didn't run {items} tasks in {_STALLED_S:g} s")
            clock.sleep(_LOOK_S)
        return clock.monotonic() - since_s

    def _size(self) -> int:
        return os.stat(self._done.name).st_size

    def __enter__(self) -> "PlainCelery":
        self.seconds(_WARM_UP)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.terminate()
        self._process.wait()
        self._app.close()
        self._done.close()


def _serve(broker: str, done: str) -> None:
    app = _app(broker)
    file = os.open(done, os.O_WRONLY | os.O_APPEND)

    @app.task(name=_TASK)  # type: ignore[untyped-decorator]
    def echo(text: str) -> str:
        os.write(file, b".")
        return text

    app.Worker(pool="prefork", concurrency=2, quiet=True).start()


if __name__ == "__main__":
    _serve(*sys.argv[1:])
