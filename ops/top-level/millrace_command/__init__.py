"""Start of the command `millrace`, in a package whose name nobody else has: the others may be
hidden by a user's on PYTHONPATH until `packages.find_first`."""

import sys
from pathlib import Path

_HERE = Path(__file__).absolute().parents[1]
_ROOT = _HERE if (_HERE / "jobs").is_dir() else _HERE.parents[1]  # as installed; in a checkout


def main() -> None:
    """Runs the command."""
    sys.path.insert(0, str(_ROOT))
    from jobs.processes import packages

    del sys.path[0]
    packages.find_first()

    from ops.cli.main import main as command

    command()
