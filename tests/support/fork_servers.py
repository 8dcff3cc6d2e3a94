"""Fork servers of a test run, and of a test that kills its own."""

import os
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from jobs.processes import shared_fork_server
from tests.support.processes import spawned


def share() -> None:
    """Lets all processes of the test run that this process begins share one fork server, which
    starts with the first process that an engine asks for, and ends with this process."""
    os.environ.update(shared_fork_server.environment())


@contextmanager
def owned() -> Iterator[tuple["subprocess.Popen[str]", Path]]:
    """Has another server in place of the shared one; yields its owner, with which it ends, and its
    folder, whose path must be short."""
    folder = Path(tempfile.gettempdir(), f"millrace-test-{secrets.token_hex(8)}")
    command = [sys.executable, "-c", "input()"]
    with spawned(command, stdin=subprocess.PIPE) as owner, pytest.MonkeyPatch.context() as patch:
        patch.setenv(shared_fork_server.VARIABLE, f"{owner.pid}:{folder}")
        yield owner, folder
