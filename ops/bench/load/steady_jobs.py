"""A steady trickle of one-item jobs: `… -m ops.bench.pacer URL MODEL JOBS_A_SECOND`, in a process
of its own, until its standard input ends. It prints when each job was due (monotonic seconds), how
long after that it was stored (ms), and its id."""

import asyncio
import json
import subprocess
import sys
from signal import SIGTERM
from types import TracebackType

import uvloop

from jobs import clock
from ops.bench.harness.platform import BenchError
from ops.bench.load.concurrent_clients import Connection
from ops.processes.children import die_with_parent

_CLIENTS = 16

Sample = tuple[float, float, str]


class SteadyJobs:
    """That process, as the benchmark sees it; `samples` are there once it is left."""

    def __init__(self, url: str, model: str, per_s: float) -> None:
        arguments = [url, model, str(per_s)]
        command = die_with_parent(
            [sys.executable, "-m", "ops.bench.load.steady_jobs", *arguments], SIGTERM
        )
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.samples: list[Sample] = []

    def __enter__(self) -> "SteadyJobs":
        assert self._process.stdout
        self._process.stdout.readline()  # it has begun
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        printed, _ = self._process.communicate()
        if self._process.returncode:
            raise BenchError("the steady clients failed; see above") from error
        self.samples = [tuple(sample) for sample in json.loads(printed)]


async def _client(
    connection: Connection, model: str, first_s: float, per_s: float, client: int,
    stopping: asyncio.Event, samples: list[Sample],
) -> None:  # fmt: skip
    """Posts the jobs client, client + _CLIENTS, …, each when it is due. One that is late because
    the one before was slow counts from when it was due."""
    number = client
    while not stopping.is_set():
        due_s = first_s + number / per_s
        await asyncio.sleep(due_s - clock.monotonic())
        job = await connection.post(model, number)
        samples.append((due_s, (clock.monotonic() - due_s) * 1000, job))
        number += _CLIENTS


async def _pace(url: str, model: str, per_s: float) -> list[Sample]:
    connections = [await Connection.open(url) for _ in range(_CLIENTS)]
    samples: list[Sample] = []
    stopping, first_s = asyncio.Event(), clock.monotonic()
    asyncio.get_running_loop().add_reader(sys.stdin, _stop, stopping)
    print(flush=True)
    await asyncio.gather(
        *(
            _client(connection, model, first_s, per_s, client, stopping, samples)
            for client, connection in enumerate(connections)
        )
    )
    return sorted(samples)


def _stop(stopping: asyncio.Event) -> None:
    asyncio.get_running_loop().remove_reader(sys.stdin)
    stopping.set()


if __name__ == "__main__":
    print(json.dumps(uvloop.run(_pace(sys.argv[1], sys.argv[2], float(sys.argv[3])))))
