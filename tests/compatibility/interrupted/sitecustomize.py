"""Interrupts the first reading of a job's results on this PYTHONPATH, as a network would: whoever
runs the step has to try it again. INTERRUPTED_ONCE: a file that tells it was done."""

import os
from pathlib import Path
from typing import Any

from millrace.sync.jobs import Jobs

_DONE = Path(os.environ["INTERRUPTED_ONCE"])


def _once(read: Any) -> Any:
    def reading(*given: Any, **more: Any) -> Any:
        if not _DONE.exists():
            _DONE.touch()
            raise ConnectionResetError("interrupted by the test")
        return read(*given, **more)

    return reading


Jobs.results, Jobs.wait = _once(Jobs.results), _once(Jobs.wait)  # type: ignore[method-assign]
