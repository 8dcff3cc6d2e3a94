"""Processes that tests start, whatever becomes of the test."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from ops.processes.children import die_with_parent


@contextmanager
def spawned(command: Sequence[str], **options: Any) -> Iterator["subprocess.Popen[str]"]:
    """Starts a process; what is left of it at the end is killed, and its pipes are closed."""
    with subprocess.Popen(command, text=True, **options) as process:
        try:
            yield process
        finally:
            process.kill()


def start_server(
    command: list[str], folder: Path, end: signal.Signals = signal.SIGKILL, **options: Any
) -> "subprocess.Popen[bytes]":
    """Starts a process that ends with this one, by a signal; what it prints is in `output`."""
    with (folder / "output").open("ab") as output:
        pipes: Any = {"stdin": subprocess.DEVNULL, "stdout": output, "stderr": output}
        return subprocess.Popen(die_with_parent(command, end), **pipes, **options)


def interruptible(*arguments: str) -> AbstractContextManager["subprocess.Popen[str]"]:
    """Starts Python with these arguments, and pipes for what it prints. SIGINT interrupts it, even
    where the tests run in the background of a shell, which makes its children ignore it."""
    return spawned(
        [sys.executable, *arguments],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
