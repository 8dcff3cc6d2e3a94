"""`python -m jobs.processes.fork_server FD OWNER MODULE…`: imports modules, then forks a process
for each request on the socket FD, to run one of them. It ends with the process OWNER.

Imports are most of a process' start, one to three seconds: here they happen once, and their memory
is shared. The server has one thread, and nothing of a platform is configured before a fork. A
module that can't be imported is left to the processes that need it: their logs show why.

A request is a packet of descriptors: a file with a `Request` in JSON, a socket for reports, and
those that the process gets. The server reports the pid with a pidfd, later the exit status.
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
from collections.abc import Sequence
from contextlib import suppress
from typing import TypedDict

from setproctitle import getproctitle, setproctitle

from jobs.processes import packages, startup
from jobs.processes.memory import collect_and_freeze

_PR_SET_PDEATHSIG = 1
_MOST_FDS = 16


class Request(TypedDict):
    """Process that is to be forked."""

    module: str  #: run as `python -m` does
    arguments: list[str]  #: of the module
    env: dict[str, str]  #: its environment
    cwd: str  #: working directory
    fds: list[int]  #: number that each descriptor of the packet gets
    ends_with_server: bool  #: else with the client, which has the other end of its reports


class Forked:
    """Request in the process that was forked for it."""

    def __init__(self, request: Request, fds: Sequence[int], server: int) -> None:
        self._request, self._fds, self._server = request, fds, server

    def run(self, inherited: set[str]) -> None:
        """Becomes the requested process, in a session of its own, and runs its module.

        inherited: variables that the server was started with; those that its imports have set stay.
        """
        os.setsid()
        if self._request["ends_with_server"]:
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            if os.getppid() != self._server:  # it ended before the request for its signal
                os._exit(1)
        self._place_descriptors()
        env, module = self._request["env"], self._request["module"]
        for name in inherited - env.keys():
            os.environ.pop(name, None)
        os.environ.update(env)
        paths = env.get("PYTHONPATH", "").split(os.pathsep)
        sys.path[:0] = [path for path in paths if path and path not in sys.path]
        packages.find_first()
        os.chdir(self._request["cwd"])
        if numpy_random := sys.modules.get("numpy.random"):
            numpy_random.seed()  # Python's own generator does so by itself
        sys.argv = [module, *self._request["arguments"]]
        setproctitle(" ".join([sys.executable, "-m", *sys.argv]))
        runpy.run_module(module, run_name="__main__", alter_sys=True)

    def _place_descriptors(self) -> None:
        above = max(self._request["fds"]) + 1
        # First out of the way of the numbers that they get.
        aside = [_moved(fd, above) for fd in self._fds]
        for fd, number in zip(aside, self._request["fds"], strict=True):
            os.dup2(fd, number)
            os.close(fd)


def _moved(fd: int, least: int) -> int:
    moved = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, least)
    os.close(fd)
    return moved


class _Server:
    """Loop that forks; what it has open is closed in the processes."""

    def __init__(self, link: socket.socket, owner: int) -> None:
        self._link, self._owner = link, owner
        self._wake, self._waker = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._clients: dict[int, tuple[socket.socket, bool]] = {}  # by pid: reports, ends with it
        self._poll = select.poll()
        for fd in (link.fileno(), owner, self._wake):
            self._poll.register(fd, select.POLLIN)

    def serve(self) -> Forked | None:
        """Returns the request in each process that was forked, and None in the server once its
        owner is gone."""
        signal.set_wakeup_fd(self._waker, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        while True:
            ready = {fd for fd, _ in self._poll.poll()}
            if self._owner in ready:
                return None
            if self._wake in ready:
                os.read(self._wake, 4096)
                self._report_ended()
            self._forget_clients(ready)
            if self._link.fileno() in ready:
                packet, fds, *_ = socket.recv_fds(self._link, 1, _MOST_FDS)
                if not packet:
                    return None
                if forked := self._fork(*fds):
                    return forked

    def _fork(self, file: int, reports_fd: int, *fds: int) -> Forked | None:
        with os.fdopen(file) as text:
            request: Request = json.load(text)
        reports, server = socket.socket(fileno=reports_fd), os.getpid()
        try:
            pid = os.fork()
        except OSError as error:
            _report(reports, {"failed": str(error)})
            reports.close()
        else:
            if pid == 0:
                reports.close()
                self._close()
                return Forked(request, fds, server)
            self._add(pid, reports, not request["ends_with_server"])
        for fd in fds:
            os.close(fd)
        return None

    def _add(self, pid: int, reports: socket.socket, ends_with_client: bool) -> None:
        pidfd = os.pidfd_open(pid)
        _report(reports, {"started": pid}, pidfd)
        os.close(pidfd)
        self._clients[pid] = reports, ends_with_client
        self._poll.register(reports, 0)  # the end of the client is told in any case

    def _report_ended(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            if client := self._clients.pop(pid, None):
                _report(client[0], {"ended": os.waitstatus_to_exitcode(status)})
                self._close_client(client[0])

    def _forget_clients(self, ready: set[int]) -> None:
        for pid, (reports, ends_with_it) in list(self._clients.items()):
            if reports.fileno() in ready:
                del self._clients[pid]
                self._close_client(reports)
                if ends_with_it:
                    os.kill(pid, signal.SIGKILL)

    def _close_client(self, reports: socket.socket) -> None:
        self._poll.unregister(reports)
        reports.close()

    def _close(self) -> None:
        """Closes, in a process that was forked, what belongs to the server."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for fd in (self._owner, self._wake, self._waker):
            os.close(fd)
        for reports, _ in self._clients.values():
            reports.close()
        self._link.close()


def _report(reports: socket.socket, report: dict[str, int | str], *fds: int) -> None:
    with suppress(OSError):  # the client is gone
        socket.send_fds(reports, [json.dumps(report).encode()], fds)


def serve(link: socket.socket, owner: int, modules: Sequence[str]) -> None:
    """Imports modules and serves requests until the process `owner` ends, or the other end of the
    socket is closed; runs the requested module in each process that is forked."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for our parent
    try:
        owner_pidfd = os.pidfd_open(owner)
    except ProcessLookupError:
        return
    setproctitle(getproctitle())  # it finds its place by the environment, which imports change
    inherited = set(os.environ)
    startup.begin()
    for module in modules:
        with suppress(Exception):
            importlib.import_module(module)
    collect_and_freeze()
    if forked := _Server(link, owner_pidfd).serve():
        signal.signal(signal.SIGINT, signal.default_int_handler)
        forked.run(inherited)


def main() -> None:
    """Serves requests on an inherited socket."""
    fd, owner, *modules = sys.argv[1:]
    serve(socket.socket(fileno=int(fd)), int(owner), modules)


if __name__ == "__main__":
    main()
