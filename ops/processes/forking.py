"""Children that a fork server starts (fork_server.py), in milliseconds instead of seconds."""

import atexit
import json
import os
import select
import signal
import socket
import subprocess
import threading
import weakref
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from jobs import clock
from jobs.processes import packages
from ops.processes import fork_server
from ops.processes.children import Child, Process, die_with_parent

_STARTED_WITHIN_S = 120.0  # the server imports first
_POLL_S = 0.005


class ForkedProcess:
    """Process that a fork server started."""

    def __init__(self, server: "ForkServer", pid: int, pidfd: int) -> None:
        self.pid = pid
        self.returncode: int | None = None  #: exit status, once `poll` or `wait` saw the end
        self._server, self._pidfd = server, pidfd
        weakref.finalize(self, os.close, pidfd)

    def fileno(self) -> int:
        """Returns a descriptor that is readable once the server reports an end."""
        return self._server.fileno(self._pidfd)

    def poll(self) -> int | None:
        """Returns the exit status; None while the process runs."""
        if self.returncode is None:
            self.returncode = self._server.exit_status(self.pid)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Returns the exit status. Raises subprocess.TimeoutExpired. timeout: s."""
        until_s = None if timeout is None else clock.monotonic() + timeout
        while (code := self.poll()) is None:
            if until_s is not None and clock.monotonic() >= until_s:
                raise subprocess.TimeoutExpired(str(self.pid), timeout or 0.0)
            clock.sleep(_POLL_S)
        return code

    def send_signal(self, number: int) -> None:
        """Signals the process, unless it has ended."""
        if self.poll() is None:
            with suppress(ProcessLookupError):  # its end is not reported yet
                signal.pidfd_send_signal(self._pidfd, number)

    def terminate(self) -> None:
        """Sends SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Sends SIGKILL."""
        self.send_signal(signal.SIGKILL)


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
        self._ended: dict[int, int] = {}
        self._running: set[int] = set()
        self._environ: dict[str, str] = {}
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
        with self._lock:
            imports = self._modules
            try:
                return self._fork(module, env, streams, fds)
            except OSError:
                if self._modules == imports:
                    raise
            return self._fork(module, env, streams, fds)

    def _fork(
        self, module: str, env: Mapping[str, str], streams: list[int], fds: tuple[int, ...]
    ) -> ForkedProcess:
        link, environ = self._start(), {**os.environ, **env}
        request = fork_server.Request(
            module=module,
            env={k: v for k, v in environ.items() if self._environ.get(k) != v},
            unset=[name for name in self._environ if name not in environ],
            cwd=os.getcwd(),
            fds=[1, 2, *fds],
        )
        packet = json.dumps(request).encode()
        if len(packet) > fork_server.MOST_BYTES:
            raise OSError(f"environment of {len(packet)} bytes, too large for a process")
        try:
            socket.send_fds(link, [packet], [*streams, *fds])
        except BrokenPipeError:
            self._bury()
            raise
        return self._await_started()

    def fileno(self, ended: int) -> int:
        """Returns the descriptor of the server's reports; `ended` where there is no server."""
        with self._lock:
            return ended if self._link is None else self._link.fileno()

    def exit_status(self, pid: int) -> int | None:
        """Returns the exit status of a process of this server, once; None while it runs."""
        with self._lock:
            while pid in self._running and self._has_report(0.0):
                self._receive()
            if pid not in self._running:
                return self._ended.pop(pid, -signal.SIGKILL)
            return None

    def _start(self) -> socket.socket:
        if self._process is not None and self._process.poll() is not None:
            self._bury()
        if self._link is None:
            if not self._ends_at_exit:
                atexit.register(self.stop)
                self._ends_at_exit = True
            self._link, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            argv = packages.command(fork_server.__name__, str(theirs.fileno()))
            self._environ = dict(os.environ)
            with theirs:
                self._process = subprocess.Popen(
                    die_with_parent([*argv, *self._modules], signal.SIGKILL),
                    start_new_session=True,
                    pass_fds=(theirs.fileno(),),
                )
        return self._link

    def _await_started(self) -> ForkedProcess:
        until_s = clock.monotonic() + _STARTED_WITHIN_S
        while self._link is not None and (left_s := until_s - clock.monotonic()) > 0:
            if self._has_report(left_s) and (started := self._receive()):
                return started
        raise OSError("the fork server doesn't start a process; see its output above")

    def _receive(self) -> ForkedProcess | None:
        """Takes a report of the server; returns a process that was started."""
        assert self._link is not None
        try:
            packet, fds, *_ = socket.recv_fds(self._link, 4096, 1)
        except ConnectionError:
            packet, fds = b"", []
        if not packet:
            self._bury()
            return None
        report: dict[str, Any] = json.loads(packet)
        if "started" in report:
            self._running.add(report["started"])
            self._has_started = True
            return ForkedProcess(self, report["started"], fds[0])
        if report["ended"] in self._running:
            self._running.discard(report["ended"])
            self._ended[report["ended"]] = report["code"]
        return None

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
        self._running.clear()

    def _has_report(self, timeout_s: float) -> bool:
        if self._link is None:
            return False
        poll = select.poll()
        poll.register(self._link, select.POLLIN)
        return bool(poll.poll(timeout_s * 1000))


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
