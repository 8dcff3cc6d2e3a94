"""Processes that tests start, whatever becomes of the test."""

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any


@contextmanager
def spawned(command: Sequence[str], **options: Any) -> Iterator["subprocess.Popen[str]"]:
    """Starts a process; what is left of it at the end is killed, and its pipes are closed."""
    with subprocess.Popen(command, text=True, **options) as process:
        try:
            yield process
        finally:
            process.kill()
