"""The ledger: a JSON line for every fault, acknowledged job, and stretch of results read."""

import json
import threading
from pathlib import Path
from typing import Any

from jobs import clock


class Ledger:
    """Any thread may write; a line is on its way to the disk when `write` returns."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = path.open("a", buffering=1)
        self._lock = threading.Lock()

    def write(self, event: str, **what: Any) -> None:
        line = json.dumps({"at": clock.now().isoformat(), "event": event, **what}, default=str)
        with self._lock:
            self._file.write(line + "\n")

    def close(self) -> None:
        self._file.close()
