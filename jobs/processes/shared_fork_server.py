"""Fork server that all processes of an owner share; the first one that needs it starts it.

The owner, a supervisor, names a folder to its processes by a variable (`environment`). The folder,
which only this user may enter, gets the server's socket. The server ends with the owner, and
whoever finds none there starts it again. Its processes end with the client that asked for them.
"""

import fcntl
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

from jobs import clock
from jobs.processes import forked, packages
from jobs.processes.fork_server import Request, serve
from jobs.processes.forked import ForkedProcess

VARIABLE = "MILLRACE_FORK_SERVER"
"""Names the pid of the owner and the folder, PID:PATH."""

_LOCK_POLL_S = 0.01
_NONE_THERE = (FileNotFoundError, ConnectionRefusedError)


@cache
def environment() -> Mapping[str, str]:
    """Returns the variable that lets the processes of this one share a server, which ends with this
    process; nothing where it is itself the process of an owner, whose variable they inherit."""
    if is_offered():
        return {}
    name = f"millrace-{os.getpid()}-{secrets.token_hex(8)}"
    return {VARIABLE: f"{os.getpid()}:{Path(tempfile.gettempdir(), name)}"}


def is_offered() -> bool:
    """Returns True in a process of an owner."""
    return VARIABLE in os.environ


class SharedForkServer:
    """Server in the folder of the owner, which has imported these modules.

    env: its environment; libraries read some variables when they are imported.
    """

    def __init__(self, *modules: str, env: Mapping[str, str]) -> None:
        self._modules, self._env = modules, env

    def fork(
        self,
        module: str,
        arguments: Sequence[str],
        env: Mapping[str, str],
        fds: Sequence[int],
        within_s: float,
    ) -> ForkedProcess:
        """Starts a process that runs a module; it ends with this process, or where the
        `ForkedProcess` is dropped. Raises OSError.

        env: its environment. fds: inherited under the same numbers, as are stdout and stderr.
        """
        given = [1, 2, *fds]
        request = Request(
            module=module,
            arguments=list(arguments),
            env=dict(env),
            cwd=os.getcwd(),
            fds=given,
            ends_with_server=False,
        )
        until_s = clock.monotonic() + within_s
        try:
            with self._connected(until_s) as link:
                return forked.fork(link, request, given, until_s - clock.monotonic())
        except ConnectionError:  # it was killed meanwhile
            with self._connected(until_s) as link:
                return forked.fork(link, request, given, until_s - clock.monotonic())

    @contextmanager
    def _connected(self, until_s: float) -> Iterator[socket.socket]:
        owner, _, folder = os.environ[VARIABLE].partition(":")
        path = _make_private(Path(folder)) / "socket"
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as link:
            try:
                link.connect(str(path))
            except _NONE_THERE:
                with _locked(path.with_name("lock"), until_s):
                    try:
                        link.connect(str(path))
                    except _NONE_THERE:
                        self._start(path, owner, until_s)
                        link.connect(str(path))
            yield link

    def _start(self, path: Path, owner: str, until_s: float) -> None:
        """Starts the server, which listens and still imports when this returns."""
        log = path.with_name("log")
        with log.open("ab") as output:
            done = subprocess.run(
                packages.command(__spec__.name, str(path), owner, *self._modules),
                env=self._env,
                start_new_session=True,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                timeout=max(1.0, until_s - clock.monotonic()),
            )
        if done.returncode:
            raise OSError(f"the fork server doesn't start: see {log}")


def _make_private(folder: Path) -> Path:
    """Makes a folder that nobody else may enter. Raises PermissionError where it is another's."""
    with suppress(FileExistsError):
        folder.mkdir(0o700)
    found = folder.lstat()
    if found.st_uid != os.geteuid() or found.st_mode & 0o777 != 0o700 or folder.is_symlink():
        raise PermissionError(f"{folder} is not ours alone")
    return folder


@contextmanager
def _locked(path: Path, until_s: float) -> Iterator[None]:
    with path.open("w") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if clock.monotonic() >= until_s:
                    raise TimeoutError(f"another process holds {path}") from None
                clock.sleep(_LOCK_POLL_S)
        yield


def main() -> None:
    """Serves requests on a socket of this path, as nobody's child."""
    path, owner, *modules = sys.argv[1:]
    link = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    with suppress(FileNotFoundError):
        os.unlink(path)
    link.bind(path)
    if os.fork():
        os._exit(0)  # whoever starts it needn't wait for its end
    server = os.getpid()
    serve(link, int(owner), modules)
    if os.getpid() == server:
        shutil.rmtree(Path(path).parent, ignore_errors=True)
        os._exit(0)  # without taking down all that was imported


if __name__ == "__main__":
    main()
