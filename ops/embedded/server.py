"""Base of the embedded servers: start, readiness, end."""

import importlib.util
import logging
import os
import signal
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import ClassVar

from jobs import clock
from ops.embedded.account import Account, account_for, with_access
from ops.embedded.errors import EmbeddedError
from ops.embedded.layout import Layout, make_private_folder
from ops.embedded.leftovers import end_processes
from ops.processes.children import Started, describe_exit

_log = logging.getLogger(__name__)

READY_WITHIN_S = 30.0
STOP_WITHIN_S = 10.0
STUCK_S = 15.0  # without a process that a server needs: at two looks
_POLL_S = 0.005
_TAIL_BYTES = 2000


def packaged_binary(package: str, *path: str) -> Path | None:
    """Program in the folder of an installed package, which is not imported."""
    spec = importlib.util.find_spec(package)
    folders = (spec and spec.submodule_search_locations) or ()
    return next((file for file in (Path(each, *path) for each in folders) if file.exists()), None)


class Server(ABC):
    """Private server under a home; for the main thread, which holds the HomeLock."""

    name: ClassVar[str]
    stop_signal: ClassVar[signal.Signals]

    def __init__(self, home: Path) -> None:
        self.layout = Layout.of(home)
        self.process: Started | None = None
        self._complete_s = 0.0  # when it was seen with all processes that it needs, monotonic

    @property
    def log(self) -> Path:
        """Log file."""
        return self.layout.logs / f"{self.name}.log"

    def alive(self) -> bool:
        """Returns True while the process runs."""
        return self.process is not None and self.process.poll() is None

    def is_stuck(self) -> bool:
        """Returns True where the main process runs, but has long lacked one that it needs."""
        if not self.alive() or self._is_complete():
            self._complete_s = clock.monotonic()
        return clock.monotonic() > self._complete_s + STUCK_S

    def _is_complete(self) -> bool:
        """Returns False while the main process lacks one without which it serves nobody."""
        return True

    def start(self) -> None:
        """Returns once the server answers. Raises EmbeddedError, with the end of its log."""
        self.launch()
        self.await_ready()

    def launch(self) -> None:
        """Starts the process, unless it runs; `await_ready` follows. Raises EmbeddedError."""
        if self.alive():
            return
        binary = self.binary()
        with self._stopped_on_failure():
            account = self._make_folders(binary)
            self._end_leftovers(binary)
            self._prepare(account, binary)
            self._complete_s = clock.monotonic()
            self.process = self._launch(account, binary)

    def await_ready(self) -> None:
        """Returns once the launched server answers. Raises EmbeddedError."""
        assert self.process
        with self._stopped_on_failure():
            self._wait_until_ready(self.process)

    @contextmanager
    def _stopped_on_failure(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self.stop()
            raise EmbeddedError(
                f"{self.name} can't start in {self.layout.home}: {error}"
            ) from error
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stops the server, or kills it if that takes too long. One that the kernel keeps, as on a
        disk that doesn't answer, is left behind."""
        process, self.process = self.process, None
        if process is None:
            return
        process.send_signal(self.stop_signal)
        for _ in range(2):
            with suppress(subprocess.TimeoutExpired):
                process.wait(STOP_WITHIN_S)
                return
            process.kill()
        _log.error("%s (pid %d) doesn't end although it was killed", self.name, process.pid)

    def _start_process(
        self, account: Account, argv: Sequence[str | Path], stdin: int = subprocess.DEVNULL
    ) -> Started:
        """Starts a command whose output goes to the log."""
        with self.log.open("ab") as output:
            return account.launch(argv, self.stop_signal, stdin=stdin, stdout=output)

    @abstractmethod
    def binary(self) -> Path:
        """Returns the server's program. Raises EmbeddedError where there is none."""

    @abstractmethod
    def _launch(self, account: Account, binary: Path) -> Started: ...

    @abstractmethod
    def _is_ready(self, pid: int) -> bool: ...

    def _prepare(self, account: Account, binary: Path) -> None:  # noqa: B027
        """Prepares files before the launch."""

    def _end_leftovers(self, binary: Path) -> None:
        end_processes(binary.name, self.layout.tag, self.stop_signal)

    def _make_folders(self, binary: Path) -> Account:
        """Makes the folders, each with its owner; returns the user that the server runs as."""
        layout = self.layout
        layout.home.mkdir(mode=0o711, parents=True, exist_ok=True)
        account = account_for(layout.data)
        make_private_folder(layout.logs, os.geteuid(), os.getegid())
        make_private_folder(layout.run, account.uid, account.gid)
        return with_access(account, [binary, layout.home, layout.run])

    def _wait_until_ready(self, process: Started) -> None:
        """Waits while the log grows: a recovery after a crash may take long."""
        logged, deadline = -1, 0.0
        while not self._is_ready(process.pid):
            if process.poll() is not None:
                raise self._failure(f"ended with {describe_exit(process.returncode)} as it started")
            if self.is_stuck():
                raise self._failure("lacks processes that it needs, and starts none")
            size = self.log.stat().st_size
            if size != logged:
                logged, deadline = size, clock.monotonic() + READY_WITHIN_S
            if clock.monotonic() > deadline:
                raise self._failure(f"isn't ready, and said nothing for {READY_WITHIN_S:g} s")
            clock.sleep(_POLL_S)

    def _failure(self, what: str) -> EmbeddedError:
        with self.log.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _TAIL_BYTES))
            tail = file.read().decode(errors="replace").strip()
        return EmbeddedError(
            f"The embedded {self.name} in {self.layout.home} {what}. "
            f"The end of its log, {self.log}:\n{tail}"
        )
