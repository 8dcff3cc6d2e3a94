"""Modules of users that packages of ours hide, since both have one name: code of a model that
imports `jobs` gets ours, whatever stands beside it."""

import ast
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from jobs.processes import packages

_CODE = ("module", "function")  # options that name importable code


def problems(options: Mapping[str, Any], beside: Path | None = None) -> list[str]:
    """Returns a sentence for each hidden module that the code of a model imports.

    Follows imports of other modules of the user: beside the file, in the folder `beside`, and on
    the import path.
    """
    file = str(options.get("file") or "")
    folders = [Path(file).parent] if file else []
    search = _Search([*folders, *([beside] if beside else []), *_users_folders()])
    for option in _CODE:
        if name := str(options.get(option) or ""):
            search.follow(name.partition(":")[0].split("."), f"options.{option}")
    if file:
        search.read(Path(file))
    return list(search.found.values())


class _Search:
    """Walk through the imports of a model's code; `found` has a sentence for each hidden module."""

    def __init__(self, folders: list[Path]) -> None:
        self._folders, self._seen = folders, set[Path]()
        self.found: dict[Path, str] = {}

    def read(self, file: Path) -> None:
        """Follows what a file imports."""
        if file in self._seen or not file.is_file():
            return
        self._seen.add(file)
        for level, parts in _imported(file):
            if level:
                self._read_parts(file.parents[level - 1], parts)
            else:
                self.follow(parts, file.name)

    def follow(self, parts: list[str], importer: str) -> None:
        """Finds what is imported by a dotted name, of a module or of a thing in one."""
        for folder in self._folders:
            if parts[0] not in packages.NAMES:
                self._read_parts(folder, parts)
            elif path := packages.rival(folder, parts[0]):
                self.found.setdefault(path.absolute(), _sentence(path, parts[0], importer))

    def _read_parts(self, folder: Path, parts: list[str]) -> None:
        for part in parts:
            self.read(folder / f"{part}.py")
            self.read(folder / part / "__init__.py")
            folder /= part


def _sentence(path: Path, name: str, importer: str) -> str:
    return (
        f"{path.absolute()} has the name of Millrace's package {name!r}, which {importer} would "
        f"import in its place: rename it, as to my_{path.name}"
    )


def _imported(file: Path) -> Iterator[tuple[int, list[str]]]:
    """Yields what a file imports, and its number of leading dots; nothing where the file is no
    Python: loading it tells."""
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((0, alias.name.split(".")) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = node.module.split(".") if node.module else []
            yield from ((node.level, [*module, alias.name]) for alias in node.names)


def _users_folders() -> Iterator[Path]:
    """Yields folders of the import path that are neither Python's nor installed into."""
    theirs = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib")})
    for entry in sys.path:
        folder = Path(entry)
        installed = folder.name in ("site-packages", "dist-packages")
        if folder.is_dir() and not installed and not entry.startswith(theirs):
            yield folder
