"""Processes that a fork server starts (fork_server.py), as its clients see them."""

import json
import os
import select
import signal
import socket
import subprocess
import threading
import weakref
from collections.abc import Sequence
from contextlib import suppress
from math import inf
from typing import Any

from jobs import clock
from jobs.processes.fork_server import Request

_MOST_BYTES = 4096  # of a report


class ForkedProcess:
    """Process that a fork server started. Once the server is gone nobody knows its exit status,
    and `returncode` is that of SIGKILL."""

    def __init__(self, pid: int, pidfd: int, reports: socket.socket) -> None:
        self.pid = pid
        self.returncode: int | None = None  #: exit status, once `poll` or `wait` saw the end
        self._pidfd, self._reports = pidfd, reports
        self._lock = threading.Lock()  # guards the report, which is read once
        self._server_is_gone = False
        weakref.finalize(self, os.close, pidfd)
        weakref.finalize(self, reports.close)

    def fileno(self) -> int:
        """Returns a descriptor that is readable once the process has ended, or its server."""
        return self._pidfd if self._server_is_gone else self._reports.fileno()

    def poll(self) -> int | None:
        """Returns the exit status; None while the process runs."""
        with self._lock:
            if self.returncode is None:
                self.returncode = self._exit_status()
            return self.returncode

    def _exit_status(self) -> int | None:
        if not self._server_is_gone:
            if not _is_readable(self._reports, 0.0):
                return None
            if report := _receive(self._reports)[0]:
                code: int = report["ended"]
                return code
            self._server_is_gone = True
        return -signal.SIGKILL if _is_readable(self._pidfd, 0.0) else None

    def wait(self, timeout: float | None = None) -> int:
        """Returns the exit status. Raises subprocess.TimeoutExpired. timeout: s."""
        until_s = inf if timeout is None else clock.monotonic() + timeout
        while (code := self.poll()) is None:
            left_s = until_s - clock.monotonic()
            if left_s <= 0:
                raise subprocess.TimeoutExpired(str(self.pid), timeout or 0.0)
            _is_readable(self, left_s)
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


def fork(
    link: socket.socket, request: Request, fds: Sequence[int], within_s: float
) -> ForkedProcess:
    """Asks the server at the other end of a socket for a process, which gets these descriptors.

    Raises TimeoutError, ConnectionError where the server is gone, and another OSError where it
    can't fork.
    """
    until_s = clock.monotonic() + within_s
    reports, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with os.fdopen(os.memfd_create("request"), "w") as file, theirs:
        json.dump(request, file)
        file.flush()
        file.seek(0)
        try:
            link.settimeout(within_s)
            socket.send_fds(link, [b"f"], [file.fileno(), theirs.fileno(), *fds])
        except BaseException:
            reports.close()
            raise
    try:
        return _started(reports, until_s - clock.monotonic())
    except BaseException:
        reports.close()  # where the server comes to the request later, it ends the process
        raise


def _started(reports: socket.socket, within_s: float) -> ForkedProcess:
    if not _is_readable(reports, max(0.0, within_s)):
        raise TimeoutError("the fork server starts no process in time")
    report, fds = _receive(reports)
    if not report:
        raise ConnectionResetError("the fork server ended before it started a process")
    if "failed" in report:
        raise OSError(f"the fork server can't start a process: {report['failed']}")
    return ForkedProcess(report["started"], fds[0], reports)


def _receive(reports: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """Returns a report with its descriptors; an empty one where the server is gone."""
    try:
        packet, fds, *_ = socket.recv_fds(reports, _MOST_BYTES, 1)
    except ConnectionError:
        return {}, []
    return (json.loads(packet) if packet else {}), fds


def _is_readable(file: Any, timeout_s: float) -> bool:
    poll = select.poll()
    poll.register(file, select.POLLIN)
    return bool(poll.poll(None if timeout_s == inf else timeout_s * 1000))
