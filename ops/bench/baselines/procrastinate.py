"""procrastinate, jobs in PostgreSQL by row locks and NOTIFY, as a baseline of small jobs."""

import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
from psycopg.conninfo import make_conninfo

from ops.bench.baselines.environments import interpreter
from ops.bench.harness.child_process import ChildProcess, started

VERSION = "3.10.0"

_APP = Path(__file__).parent / "peers" / "procrastinate_app.py"
_DATABASE = "procrastinate"
_WARM_UP = 200


@contextmanager
def procrastinate(url: str) -> Iterator[Callable[[int], float]]:
    """Starts a worker on a database of its own, on the server of this one. Yields a function that
    defers and runs so many jobs, in seconds: from the first one deferred to the last one's end.

    It stores no results. Raises BenchError where it can't be installed.
    """
    python = interpreter("procrastinate", VERSION, "psycopg[binary]")
    with psycopg.connect(url, autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE {_DATABASE}")
    command = [str(python), "-P", str(_APP), make_conninfo(url, dbname=_DATABASE)]
    pipe = subprocess.PIPE
    with started(command, stdin=pipe, stdout=pipe) as process:
        client = ChildProcess(process)
        client.receive()  # the schema is there

        def seconds(jobs: int) -> float:
            """Runs jobs."""
            return float(client.ask(jobs))

        with started([*command, "worker"], stdout=subprocess.DEVNULL):
            seconds(_WARM_UP)
            yield seconds
