"""Process of an inference server: its log, its health, its end."""

import logging
import os
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from jobs import clock
from jobs.processes.stopped import ended_from_outside
from workers.engines.server import guardian

_log = logging.getLogger(__name__)
_GUARDIAN = Path(guardian.__file__)
_TAIL_LINES = 20  # of the log, in the error of a server that ended
_MOST_LINE = 500  # characters of a line that are logged
_ENDS_WITHIN_S = guardian.GRACE_S + 5.0


class ServerProcess:
    """Server with its guardian. name: of its model, before each line that it logs."""

    def __init__(self, name: str, argv: Sequence[str], environment: Mapping[str, str]) -> None:
        self._name = name
        self._tail: deque[str] = deque(maxlen=_TAIL_LINES)
        self._killed = ""  # reason, where we did it
        self._process = subprocess.Popen(
            [sys.executable, "-I", str(_GUARDIAN), str(os.getpid()), *argv],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=dict(environment),
            start_new_session=True,
        )
        assert self._process.stdout
        self._reader = threading.Thread(
            target=self._read, args=(self._process.stdout,), name=f"log-{name}", daemon=True
        )
        self._reader.start()

    @property
    def pid(self) -> int:
        """Id of the guardian, whose only child is the server."""
        return self._process.pid

    def why_ended(self, within_s: float = 0.0) -> str:
        """Returns why the server has ended, with the end of its log; "" while it runs.

        within_s: time to wait for its end.
        """
        if not self._ended(within_s):
            return ""
        self._reader.join(1.0)  # what it said last
        how = self._killed or f"it ended with {_described(self._process.returncode)}"
        said = "\n".join(self._tail)
        return f"{how}; its last lines:\n{said}" if said else how

    @property
    def ended_from_outside(self) -> bool:
        """True where somebody else has killed the server, or its guardian."""
        status = self._process.poll()
        if status is None or self._killed:
            return False
        return ended_from_outside(128 - status if status > 128 else status)

    def _ended(self, within_s: float) -> bool:
        until_s = clock.monotonic() + within_s
        while self._process.poll() is None:
            if clock.monotonic() >= until_s:
                return False
            clock.sleep(0.01)
        return True

    def stop(self, reason: str = "") -> None:
        """Ends the server, and waits for that. reason: of an end by force, for `why_ended`."""
        if reason and self._process.poll() is None:
            self._killed = reason
            _log.error("%s: the server %s", self._name, reason)
        self._process.terminate()
        try:
            self._process.wait(_ENDS_WITHIN_S)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def _read(self, output: IO[bytes]) -> None:
        with output:
            for raw in output:
                if line := raw.decode("utf-8", "replace").rstrip()[:_MOST_LINE]:
                    self._tail.append(line)
                    _log.info("[%s] %s", self._name, line)


def _described(status: int) -> str:
    """Describes an exit status as a shell has it."""
    if status <= 128:
        return f"exit status {status}"
    try:
        return signal.Signals(status - 128).name
    except ValueError:
        return f"exit status {status}"
