"""mosec, the best existing server of the kind, beside ours: in a venv of its own, below the user's
cache folder, made when it is first needed."""

import os
import subprocess
import sys
import venv
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from signal import SIGKILL, SIGTERM

import httpx

from jobs import clock
from ops.bench.harness.errors import BenchError
from ops.bench.probes import cpu
from ops.processes.children import die_with_parent
from ops.supervisor.platform import free_port

VERSION = "0.9.8"
WAITS_MS = (5, 10, 17, 20, 30)
"""The fixed waits to choose from; 17 is a launch of 100 ms over six replicas."""

_APP = Path(__file__).parent / "peers" / "mosec_app.py"
_CAPACITY, _TIMEOUT_MS = 10_000, 10_000
_READY_WITHIN_S, _LOOK_S, _END_WITHIN_S = 60.0, 0.1, 10.0


@dataclass(frozen=True, slots=True)
class Mosec:
    """One that runs; url: of its calls."""

    url: str
    meter: cpu.Meter


@contextmanager
def mosec(processes: int, max_batch: int, wait_ms: int, launch_ms: int = 100) -> Iterator[Mosec]:
    """Serves batchstring; a launch leaves when it is full, or after wait_ms."""
    port = free_port()
    sizes = [str(size) for size in (processes, max_batch, wait_ms, launch_ms)]
    options = ["--address", "127.0.0.1", "--port", str(port), "--log-level", "error"]
    options += ["--capacity", str(_CAPACITY), "--timeout", str(_TIMEOUT_MS)]
    process = subprocess.Popen(
        die_with_parent([str(_python()), "-P", str(_APP), *sizes, *options], SIGTERM),
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        url = f"http://127.0.0.1:{port}/inference"
        _await_ready(process, url)
        yield Mosec(url, cpu.of_process("mosec", process.pid))
    finally:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(_END_WITHIN_S)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, SIGKILL)  # what it left behind
        process.wait()


def _await_ready(process: "subprocess.Popen[bytes]", url: str) -> None:
    deadline_s = clock.monotonic() + _READY_WITHIN_S
    while process.poll() is None and clock.monotonic() < deadline_s:
        try:
            if httpx.post(url, json={"input": "ready?"}, timeout=5).status_code == 200:
                return
        except httpx.TransportError:
            pass
        clock.sleep(_LOOK_S)
    raise BenchError("mosec did not start; see above")


def _python() -> Path:
    """The venv's; it is made, and mosec installed, where it isn't there yet."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join("~", ".cache")
    name = f"mosec-{VERSION}-py{sys.version_info.major}.{sys.version_info.minor}"
    folder = Path(base).expanduser() / "millrace" / name
    python, installed = folder / "bin" / "python", folder / "installed"
    if not installed.exists():
        venv.create(folder, clear=True, with_pip=True)
        command = [str(python), "-m", "pip", "install", "-qq", f"mosec=={VERSION}"]
        if subprocess.run(command, stdout=sys.stderr).returncode:
            raise BenchError(f"mosec {VERSION} could not be installed into {folder}; see above")
        installed.touch()
    return python
