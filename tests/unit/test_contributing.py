"""CONTRIBUTING names targets of make that there are."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_targets_of_make_that_pages_name_are_there() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for page in ("CONTRIBUTING.md", "README.md"):
        named = set(re.findall(r"\bmake ([a-z-]+)`", (ROOT / page).read_text()))
        assert named, page
        assert named <= targets, page
