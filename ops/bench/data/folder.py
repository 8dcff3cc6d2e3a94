"""Folder of real data, which MILLRACE_SHARED names; without it all data is made."""

import os
from pathlib import Path
from typing import Literal

from ops.bench.harness.errors import BenchError

SETTING = "MILLRACE_SHARED"
_read = set[str]()


def real_file(name: str) -> Path | None:
    """Returns a file of real data; None without such a folder. Raises BenchError if it lacks it."""
    folder = os.environ.get(SETTING)
    if not folder:
        return None
    path = Path(folder) / "data" / name
    if not path.exists():
        raise BenchError(f"there is no {path}; without {SETTING} benchmarks make their data")
    _read.add(name)
    return path


def origin() -> Literal["made", "real"]:
    """Returns the kind of data that this process measured with."""
    return "real" if _read else "made"


def forget() -> None:
    """Begins anew, for the next benchmark of a process."""
    _read.clear()
