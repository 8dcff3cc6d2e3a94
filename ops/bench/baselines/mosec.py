"""mosec, the best existing server of this kind, as a baseline."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx

from ops.bench.baselines.environments import interpreter
from ops.bench.harness.child_process import started
from ops.bench.harness.errors import BenchError
from ops.bench.harness.platform import wait_until
from ops.bench.probes.cpu import Meter
from ops.processes.ports import free_port

VERSION = "0.9.8"
#: Fixed waits to choose from, ms; 17 is a launch of 100 ms over six replicas.
WAITS_MS = (5, 10, 17, 20, 30)

_APP = Path(__file__).parent / "peers" / "mosec_app.py"
_OPTIONS = ["--log-level", "error", "--capacity", "10000", "--timeout", "10000"]
_READY_WITHIN_S = 60.0


@contextmanager
def mosec(
    processes: int, max_batch: int, wait_ms: int, launch_ms: int = 100
) -> Iterator[tuple[str, Meter]]:
    """Serves batchstring; a launch leaves when it is full, or after wait_ms.

    Yields (URL of its calls, its meter).
    """
    port = free_port()
    url = f"http://127.0.0.1:{port}/inference"
    sizes = [str(size) for size in (processes, max_batch, wait_ms, launch_ms)]
    address = ["--address", "127.0.0.1", "--port", str(port)]
    command = [str(interpreter("mosec", VERSION)), "-P", str(_APP), *sizes, *address, *_OPTIONS]
    with started(command, stdout=subprocess.DEVNULL) as process:

        def is_ready() -> bool:
            """Returns True once it answers. Raises BenchError where it has ended."""
            if process.poll() is not None:
                raise BenchError("mosec did not start; see above")
            with suppress(httpx.TransportError):
                return httpx.post(url, json={"input": "ready?"}, timeout=5).status_code == 200
            return False

        wait_until(is_ready, "mosec answers", _READY_WITHIN_S)
        yield url, Meter({"mosec": [process.pid]}, {})
