"""Parent's side of the child process: one message, one answer, in bounded time.

The supervisor's fork server starts it, which has imported torch and transformers. Without one it is
started from scratch, in three seconds of CPU time.
"""

import logging
import os
import socket
import struct
import subprocess
import sys
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

from jobs.processes import packages
from jobs.processes.forked import ForkedProcess
from jobs.processes.shared_fork_server import SharedForkServer, is_offered
from jobs.processes.stopped import ended_from_outside
from workers.engines import cuda_uuid
from workers.engines.generator import GeneratorDied

MODEL = "workers.engines.transformers.child"
"""Module of the process that holds a model."""

IMPORTED = (
    "workers.engines.transformers.child.loading",
    "transformers.modeling_utils",
    "workers.engines.transformers.structured.compiler",
    "llguidance.numpy",
)
"""Modules that the fork server imports for the processes of this engine."""

_EXIT_S = 10.0  # from SIGKILL to the exit status

_log = logging.getLogger("millrace.processes")


class ChildProcess:
    """Process of a module. An answer that is late, or an exception, ends it.

    within_s: time that the fork server may take to start it.
    """

    def __init__(
        self, threads: int, module: str = MODEL, *, device: str = "", within_s: float
    ) -> None:
        environment = _environment(threads)
        cuda_uuid.show_only(device, environment)
        ours, theirs = socket.socketpair()
        with theirs:  # ours is the only other end: it reads EOF when the process is gone
            self._process = _started(module, environment, theirs.fileno(), within_s)
        self._socket = ours
        self._pipe = Connection(os.dup(ours.fileno()))

    @property
    def pid(self) -> int:
        """Id of the process."""
        return self._process.pid

    @property
    def exit_status(self) -> int | None:
        """Exit status, negative for a signal; None while it runs."""
        return self._process.returncode

    def check(self) -> None:
        """Raises GeneratorDied where the process has ended."""
        if self._process.poll() is not None:
            raise self._death()

    def ask(self, message: Any, timeout_s: float) -> Any:
        """Sends a message and returns the answer. Raises the exception that it is, and
        GeneratorDied where none comes in time; the process is killed then."""
        try:
            answer = self._exchange(message, timeout_s)
        except (EOFError, OSError) as error:
            self.kill()
            raise self._death() from error
        if isinstance(answer, Exception):
            self.kill()
            raise answer
        return answer

    def _death(self) -> GeneratorDied:
        status = self._process.returncode
        message = f"its process ended with exit status {status}"
        return GeneratorDied(message, outside=ended_from_outside(status))

    def _exchange(self, message: Any, timeout_s: float) -> Any:
        self._limit(timeout_s)
        self._pipe.send(message)
        if not self._pipe.poll(timeout_s):
            self.kill()
            raise GeneratorDied(f"its process did not answer within {timeout_s:g} s")
        return self._pipe.recv()

    def _limit(self, timeout_s: float) -> None:
        """Bounds reads and writes of a process that stopped in the middle of a message."""
        seconds = struct.pack("ll", int(timeout_s) + 1, 0)
        for option in (socket.SO_SNDTIMEO, socket.SO_RCVTIMEO):
            self._socket.setsockopt(socket.SOL_SOCKET, option, seconds)

    def kill(self) -> None:
        """Ends the process and waits for that."""
        self._process.kill()
        with suppress(subprocess.TimeoutExpired):  # in the kernel, as at a device that hangs
            self._process.wait(_EXIT_S)
        self._pipe.close()
        self._socket.close()


def _environment(threads: int) -> dict[str, str]:
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "OMP_NUM_THREADS": str(threads),
        "TOKENIZERS_PARALLELISM": "false",
    }


def _started(
    module: str, environment: dict[str, str], fd: int, within_s: float
) -> "ForkedProcess | subprocess.Popen[bytes]":
    arguments = [str(fd), str(os.getpid())]
    if is_offered():
        # A thread of the server would not be there in its processes: its libraries start none.
        server = SharedForkServer(*IMPORTED, env=_environment(threads=1))
        try:
            return server.fork(module, arguments, environment, [fd], within_s)
        except (OSError, subprocess.TimeoutExpired) as error:
            _log.warning("%s starts without the fork server: %s", module, error)
    return subprocess.Popen(
        packages.command(module, *arguments),
        pass_fds=[fd],
        stdin=subprocess.DEVNULL,
        env=environment,
    )
