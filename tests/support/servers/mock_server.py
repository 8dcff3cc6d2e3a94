"""guidellm's mock server: an OpenAI-compatible server that isn't ours, as a process of its own.

It is installed beside our packages, without what only the rest of guidellm needs.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx

from ops.processes.ports import free_port
from tests.support.processes import spawned
from tests.support.wait import eventually

_LOCK = Path(__file__).with_name("guidellm.lock")
_MAIN = """
from guidellm.mock_server import MockServer
from guidellm.schemas.mock_server import MockServerConfig
MockServer(MockServerConfig()).run(access_log=False)
"""


class NotInstalled(Exception):
    """Raised where the registry has not answered, or doesn't have what is pinned."""


def install(folder: Path) -> Path:
    """Installs the server into a folder, and returns that. Raises NotInstalled."""
    environ = {name: value for name, value in os.environ.items() if name != "PIP_NO_INDEX"}
    quiet = "--disable-pip-version-check", "-q", "--no-deps", "--retries", "1"
    command = [sys.executable, "-m", "pip", "install", *quiet, "-r", _LOCK, "--target", folder]
    done = subprocess.run(command, env=environ, capture_output=True, text=True)
    if done.returncode:
        raise NotInstalled(done.stderr.strip().rpartition("\n")[2])
    return folder


@contextmanager
def running(installed: Path, **options: float) -> Iterator[str]:
    """Runs the server with options of its configuration; yields its address."""
    port = free_port()
    environ = {f"GUIDELLM_MOCK_SERVER_{name.upper()}": f"{n}" for name, n in options.items()}
    environ |= {"PYTHONPATH": str(installed), "GUIDELLM_MOCK_SERVER_PORT": f"{port}"}
    quiet: Any = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    url = f"http://127.0.0.1:{port}"

    def serves() -> bool:
        assert process.poll() is None, "the mock server has ended"
        with suppress(httpx.TransportError):
            return httpx.get(f"{url}/health").is_success
        return False

    command = [sys.executable, "-c", _MAIN]
    with spawned(command, env=dict(os.environ) | environ, cwd=installed, **quiet) as process:
        eventually(serves)
        yield url
