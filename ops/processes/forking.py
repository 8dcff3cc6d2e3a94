"""Children that a fork server starts (jobs/processes/fork_server.py), in milliseconds instead of
seconds."""

import atexit
import os
import signal
import socket
import subprocess
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import IO

from jobs.processes import fork_server, forked, packages
from jobs.processes.forked import ForkedProcess
from ops.processes.children import Child, Process, die_with_parent

_STARTED_WITHIN_S = 120.0  # the server imports first


class ForkServer:
    """Server process that has imported these modules, started again where it has ended. Its
    processes end with it, and it ends with the thread that started it.

    One that dies before it has started a process may have died of an import: the next imports
    nothing, and processes load what they need.
    """

    def __init__(self, *modules: str) -> None:
        self._modules = modules
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._link: socket.socket | None = None
        self._ends_at_exit = self._has_started = False

    def start(self) -> None:
        """Starts the server, if it doesn't run, and returns while it imports."""
        with self._lock:
            self._start()

    def stop(self) -> None:
        """Ends the server and its processes."""
        with self._lock:
            self._forget()

    def fork(
        self, module: str, env: Mapping[str, str], output: IO[bytes] | None, fds: tuple[int, ...]
    ) -> ForkedProcess:
        """Starts a process that runs a module, as `python -m` does. Raises OSError.

        env: added to our environment. output: for its stdout and stderr; None: ours. fds: inherited
        under the same numbers.
        """
        streams = [1, 2] if output is None else [output.fileno()] * 2
        request = fork_server.Request(
            module=module,
            arguments=[],
            env={**os.environ, **env},
            cwd=os.getcwd(),
            fds=[1, 2, *fds],
            ends_with_server=True,
        )
        with self._lock:
            imports = self._modules
            try:
                return self._fork(request, [*streams, *fds])
            except OSError:
                if self._modules == imports:
                    raise
            return self._fork(request, [*streams, *fds])

    def _fork(self, request: fork_server.Request, fds: list[int]) -> ForkedProcess:
        try:
            process = forked.fork(self._start(), request, fds, _STARTED_WITHIN_S)
        except ConnectionError:
            self._bury()
            raise
        self._has_started = True
        return process

    def _start(self) -> socket.socket:
        if self._process is not None and self._process.poll() is not None:
            self._bury()
        if self._link is None:
            if not self._ends_at_exit:
                atexit.register(self.stop)
                self._ends_at_exit = True
            self._link, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with theirs:
                arguments = [str(theirs.fileno()), str(os.getpid()), *self._modules]
                command = packages.command(fork_server.__name__, *arguments)
                self._process = subprocess.Popen(
                    die_with_parent(command, signal.SIGKILL),
                    start_new_session=True,
                    pass_fds=(theirs.fileno(),),
                )
        return self._link

    def _bury(self) -> None:
        """Forgets a server that has died."""
        self._forget()
        if not self._has_started:
            self._modules = ()

    def _forget(self) -> None:
        """Ends the server: the kernel kills its processes."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        if self._link is not None:
            self._link.close()
        self._process = self._link = None


class ForkedChild(Child):
    """Child that runs a module of ours, forked by a server that has imported it."""

    def __init__(
        self,
        server: ForkServer,
        name: str,
        module: str,
        env: Mapping[str, str],
        log: Path | None = None,
        pass_fds: tuple[int, ...] = (),
    ) -> None:
        super().__init__(name, packages.command(module), env, log, pass_fds)
        self._server, self._module = server, module

    def _spawn(self, output: IO[bytes] | None) -> Process:
        return self._server.fork(self._module, self.env, output, self.pass_fds)
