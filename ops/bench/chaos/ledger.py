"""Ledger: a JSON line for every fault, acknowledged job, and range of results read."""

import json
import threading
from pathlib import Path
from typing import Any

from jobs import clock


class Ledger:
    """File that any thread may write to."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = path.open("a", buffering=1)
        self._lock = threading.Lock()

    def write(self, event: str, **what: Any) -> None:
        """Writes a line and flushes it."""
        line = json.dumps({"at": clock.now().isoformat(), "event": event, **what}, default=str)
        with self._lock:
            self._file.write(line + "\n")

    def close(self) -> None:
        """Closes the file."""
        self._file.close()
