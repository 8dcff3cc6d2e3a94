"""Packages of ours, which are found before others of the same names: on PYTHONPATH, in the working
directory, or beside a models file.

`python …/packages.py MODULE ARGUMENT…` runs a module as `python -m` does, and finds ours first.
"""

import os
import sys
from itertools import chain
from pathlib import Path

NAMES = ("api", "jobs", "migrations", "millrace", "ops", "workers")
_ROOT = Path(__file__).absolute().parents[2]
_FOLDERS = [folder for folder in (_ROOT, _ROOT / "ops" / "top-level") if folder.is_dir()]


def command(module: str, *arguments: str) -> list[str]:
    """Returns the command of a process that runs a module of ours."""
    return [sys.executable, __file__, module, *arguments]


def find_first() -> None:
    """Lets folders on the import path that hold a name of ours be searched last."""
    hiding = [one for one in sys.path if any(rival(Path(one), name) for name in NAMES)]
    others = [one for one in sys.path if one not in hiding]
    ours = [str(folder) for folder in _FOLDERS if str(folder) not in others]
    sys.path[:] = [*others, *ours, *hiding]


def rival(folder: Path, name: str) -> Path | None:
    """Returns the module there that has the name of a package of ours, and isn't it."""
    file, package = folder / f"{name}.py", folder / name
    if file.is_file():
        return file
    if not package.is_dir() or any(_same(package, ours / name) for ours in _FOLDERS):
        return None
    modules = chain(package.glob("*.py"), package.glob("*/*.py"))
    return package if next(modules, None) else None


def _same(one: Path, other: Path) -> bool:
    return other.is_dir() and one.samefile(other)


def _main() -> None:
    import runpy  # not for the command, which starts itself

    if not sys.flags.safe_path:
        sys.path[0] = os.getcwd()
    find_first()
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    _main()
