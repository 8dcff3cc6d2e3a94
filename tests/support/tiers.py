"""Tiers of the tests: quick (unit tests), test, nightly; each holds the one before.

A test, or a whole file by a line `pytestmark = pytest.mark.nightly`, is marked `heavy` (it imports
torch, or starts processes or servers) or `nightly`. Files that a tier leaves out are not imported,
which is most of what collecting costs.
"""

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

#: By tier, the marks that it leaves out.
LEFT_OUT = {"quick": {"heavy", "nightly"}, "test": {"nightly"}, "nightly": frozenset[str]()}
#: Folders that belong to a tier as a whole.
FOLDERS = {"compatibility": "nightly", "image": "nightly"}

_ROOT = Path(__file__).parents[2]
_TESTS = _ROOT / "tests"
_MARKED = re.compile(r"^pytestmark = .*?\bpytest\.mark\.(heavy|nightly)\b", re.MULTILINE)
_ANY_MARK = re.compile(r"\bmark\.(heavy|nightly)\b")
_SHARED = re.compile(r"^PLATFORM = ([A-Z_]+)$", re.MULTILINE)


@dataclass(frozen=True)
class Selection:
    """Tests of a tier, without those of a smaller one that has been run before."""

    tier: str
    after: str = ""  #: the smaller tier; empty: none

    def leaves_out(self, path: Path) -> bool:
        """Returns True if no test of a file, or folder, is run."""
        if path.is_dir():
            return path.parent == _TESTS and FOLDERS.get(path.name) in LEFT_OUT[self.tier]
        if not path.name.startswith("test_"):
            return False
        marks = _MARKED.findall(path.read_text())
        if not LEFT_OUT[self.tier].isdisjoint(marks):
            return True
        return bool(self.after) and _is_unit(path) and not _ANY_MARK.search(path.read_text())

    def deselect(self, items: list[pytest.Item]) -> list[pytest.Item]:
        out = [item for item in items if not self._holds(item)]
        items[:] = [item for item in items if self._holds(item)]
        return out

    def _holds(self, item: pytest.Item) -> bool:
        marks = {mark.name for mark in item.iter_markers()}
        if not marks.isdisjoint(LEFT_OUT[self.tier]):
            return False
        ran_before = _is_unit(item.path) and marks.isdisjoint(LEFT_OUT[self.after or "quick"])
        return not (self.after and ran_before)


@cache
def group_of(path: str) -> str:
    """Returns the shared platform that a test file names, or the file: these tests run one after
    another, in one process."""
    declared = _SHARED.search((_ROOT / path).read_text())
    return declared[1] if declared else path


def _is_unit(path: Path) -> bool:
    return path.is_relative_to(_TESTS / "unit")
