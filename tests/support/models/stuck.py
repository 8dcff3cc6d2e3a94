"""A module whose first import hangs."""

import os
from pathlib import Path

from jobs import clock

_marker = Path(os.environ["MILLRACE_HOME"]) / "imported"
if not _marker.exists():
    _marker.touch()
    clock.sleep(600)


def same(inputs: list[str]) -> list[str]:
    return inputs
