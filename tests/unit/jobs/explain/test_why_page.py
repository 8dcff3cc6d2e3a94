"""ops/docs/how-to/operations/why.md has a line for every code, and for no other."""

import re
from pathlib import Path

from jobs.explain.diagnosis import CODES

PAGE = Path(__file__).parents[4] / "ops/docs/how-to/operations/why.md"


def test_every_diagnosis_is_explained() -> None:
    told = re.findall(r"^\| `([a-z_]+)` \|", PAGE.read_text(), re.MULTILINE)
    assert sorted(told) == sorted(CODES)
