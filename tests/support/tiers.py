"""Tiers of the tests: quick, test, nightly; each holds the one before.

A test, or a whole file by a line `pytestmark = pytest.mark.nightly`, is marked `heavy` (it imports
torch, or starts processes or servers) or `nightly`. Files that a tier leaves out are not imported,
which is most of what collecting costs.
"""

import re
from functools import cache
from pathlib import Path

import pytest

#: By tier, the marks that it leaves out.
LEFT_OUT = {"quick": {"heavy", "nightly"}, "test": {"nightly"}, "nightly": frozenset[str]()}
#: Folders that belong to a tier as a whole.
FOLDERS = {"compatibility": "nightly", "image": "nightly"}

_ROOT = Path(__file__).parents[2]
_MARKED = re.compile(r"^pytestmark = .*?\bpytest\.mark\.(heavy|nightly)\b", re.MULTILINE)
_SHARED = re.compile(r"^PLATFORM = ([A-Z_]+)$", re.MULTILINE)


def leaves_out(tier: str, path: Path) -> bool:
    """Returns True if no test of a file, or folder, belongs to the tier."""
    if path.is_dir():
        return path.parent == _ROOT / "tests" and FOLDERS.get(path.name) in LEFT_OUT[tier]
    return path.name.startswith("test_") and not LEFT_OUT[tier].isdisjoint(_marks(path))


def deselect(tier: str, items: list[pytest.Item]) -> list[pytest.Item]:
    """Takes the single tests out of `items` that the tier leaves out, and returns them."""
    names = LEFT_OUT[tier]
    out = [item for item in items if any(item.get_closest_marker(name) for name in names)]
    items[:] = [item for item in items if item not in set(out)]
    return out


@cache
def group_of(path: str) -> str:
    """Returns the shared platform that a test file names, or the file: these tests run one after
    another, in one process."""
    declared = _SHARED.search((_ROOT / path).read_text())
    return declared[1] if declared else path


def _marks(path: Path) -> set[str]:
    return set(_MARKED.findall(path.read_text()))
