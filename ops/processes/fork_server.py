"""`python -m ops.processes.fork_server FD MODULE…`: imports modules, then forks a process for each
request that arrives on the socket FD, to run one of them.

Imports are most of a process' start, one to two seconds: here they happen once, and their memory is
shared. The server has one thread, and nothing of a platform is configured before a fork. A module
that can't be imported is left to the processes that need it: their logs show why.

Each request is a packet of JSON with the descriptors that the process gets. The server answers with
the pid and a pidfd, and reports each end of a process with its exit status.
"""

import ctypes
import fcntl
import importlib
import json
import os
import runpy
import select
import signal
import socket
import sys
from contextlib import suppress
from typing import TypedDict

from setproctitle import setproctitle

from jobs.processes import startup
from jobs.processes.memory import collect_and_freeze

MOST_BYTES = 128 << 10
"""Size of a request at most; a socket takes a little more in one packet."""

_PR_SET_PDEATHSIG = 1
_MOST_FDS = 16


class Request(TypedDict):
    """Process that is to be forked."""

    module: str  #: run as `python -m` does
    env: dict[str, str]  #: variables that differ from the server's
    unset: list[str]  #: variables that the server has, and the process has not
    cwd: str  #: working directory
    fds: list[int]  #: number that each descriptor of the packet gets


def _serve(link: socket.socket) -> tuple[Request, list[int]] | None:
    """Forks a process for each request: returns the request and its descriptors there, and None in
    the server once its client is gone."""
    wake, waker = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    while True:
        readable, _, _ = select.select([link.fileno(), wake], [], [])
        if wake in readable:
            os.read(wake, 4096)
            _report_ended(link)
        if link.fileno() in readable:
            packet, fds, *_ = socket.recv_fds(link, MOST_BYTES, _MOST_FDS)
            if not packet:
                return None
            if (pid := os.fork()) == 0:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                os.close(wake)
                os.close(waker)
                return json.loads(packet), fds
            pidfd = os.pidfd_open(pid)
            socket.send_fds(link, [json.dumps({"started": pid}).encode()], [pidfd])
            for fd in (*fds, pidfd):
                os.close(fd)


def _report_ended(link: socket.socket) -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not pid:
            return
        link.send(json.dumps({"ended": pid, "code": os.waitstatus_to_exitcode(status)}).encode())


def _become(request: Request, fds: list[int], server: int) -> None:
    """Makes this process the requested one, in a session of its own; it ends with the server."""
    os.setsid()
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != server:  # it ended before the request for its signal
        os._exit(1)
    above = max(request["fds"]) + 1
    # First out of the way of the numbers that they get.
    aside = [_moved(fd, above) for fd in fds]
    for fd, number in zip(aside, request["fds"], strict=True):
        os.dup2(fd, number)
        os.close(fd)
    os.environ.update(request["env"])
    for name in request["unset"]:
        os.environ.pop(name, None)
    os.chdir(request["cwd"])
    setproctitle(f"{sys.executable} -m {request['module']}")


def _moved(fd: int, least: int) -> int:
    moved = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, least)
    os.close(fd)
    return moved


def main() -> None:
    """Serves requests, and runs the requested module in each forked process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for our parent
    link, server = socket.socket(fileno=int(sys.argv[1])), os.getpid()
    startup.begin()
    for module in sys.argv[2:]:
        with suppress(Exception):
            importlib.import_module(module)
    collect_and_freeze()
    forked = _serve(link)
    link.close()
    if forked is None:
        return
    request, fds = forked
    signal.signal(signal.SIGINT, signal.default_int_handler)
    _become(request, fds, server)
    sys.argv = [request["module"]]
    runpy.run_module(request["module"], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
