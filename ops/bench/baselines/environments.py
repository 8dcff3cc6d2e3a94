"""Virtual environments of peers, below the user's cache folder: none of them is a dependency."""

import fcntl
import os
import subprocess
import sys
import venv
from pathlib import Path

from ops.bench.harness.errors import BenchError


def interpreter(name: str, version: str, *extras: str) -> Path:
    """Returns the interpreter of the environment that holds a package, and makes it where it is
    missing. extras: further requirements. Raises BenchError where it can't be installed."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join("~", ".cache")
    own = f"{name}-{version}-py{sys.version_info.major}.{sys.version_info.minor}"
    folder = Path(base).expanduser() / "millrace" / own
    python, installed = folder / "bin" / "python", folder / "installed"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f"{own}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another process may be about to install it too
        if not installed.exists():
            venv.create(folder, clear=True, with_pip=True)
            command = [str(python), "-m", "pip", "install", "-qq", f"{name}=={version}", *extras]
            if subprocess.run(command, stdout=sys.stderr).returncode:
                raise BenchError(
                    f"{name} {version} could not be installed into {folder}; see above"
                )
            installed.touch()
    return python
