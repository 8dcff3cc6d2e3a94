"""The worked example of the page on capacity: its files, its commands, its figures."""

from pathlib import Path

import pytest

from tests.support.pages import ROOT, as_shown, lay_out, recipe, run

pytestmark = pytest.mark.nightly

PAGE = ROOT / "ops" / "docs" / "how-to" / "operations" / "capacity.md"


def test_the_figures_are_what_the_commands_print(tmp_path: Path) -> None:
    page = recipe(PAGE.name, PAGE.read_text())
    lay_out(tmp_path, [page], models="")
    printed = run(page, tmp_path, {})
    assert as_shown(page.shown).fullmatch(printed), printed
