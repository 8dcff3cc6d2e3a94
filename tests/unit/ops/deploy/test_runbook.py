"""The runbook: a page for each alert, an alert for each page, and all that they name."""

import re
from pathlib import Path

import pytest

from ops.cli.main import main
from tests.unit.ops.deploy.kit import ROOT, alerts
from tests.unit.ops.deploy.settings import SETTINGS

RUNBOOK = ROOT / "ops" / "docs" / "runbook"
PAGES = sorted(RUNBOOK.glob("*.md"))
WHY = ROOT / "ops" / "docs" / "how-to" / "operations" / "why.md"
FINDINGS = set(re.findall(r"^\| `(\w+)` \|", WHY.read_text(), re.MULTILINE))
SECTIONS = ["What it means", "Where it shows", "What to do", "Whom to call"]

each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)


def test_every_alert_has_its_page_and_every_page_its_alert() -> None:
    named = {(alert["alert"], alert["annotations"]["runbook"]) for alert in alerts()}
    titles = {(page.read_text().split("\n")[0].removeprefix("# "), str(page.relative_to(ROOT)))
              for page in PAGES}  # fmt: skip
    assert named == titles


@each_page
def test_a_page_tells_all_that_is_needed_at_night(page: Path) -> None:
    text = page.read_text()
    assert re.findall(r"^## (.*)", text, re.MULTILINE) == SECTIONS
    severities = {alert["labels"]["severity"] for alert in alerts()
                  if alert["annotations"]["runbook"].endswith(f"/{page.name}")}  # fmt: skip
    assert {f"Severity: {severity}" for severity in severities} == set(
        re.findall(r"Severity: \w+", text)
    )
    assert re.search(r"^1\. ", text, re.MULTILINE)


@each_page
def test_what_a_page_names_is_there(page: Path) -> None:
    text = page.read_text()
    commands = set(re.findall(r"(?:`|^    )millrace ([a-z][a-z-]*)", text, re.MULTILINE))
    assert commands <= main.commands.keys()
    assert set(re.findall(r"MILLRACE_[A-Z0-9_]*[A-Z0-9]", text)) <= SETTINGS
    [says] = re.findall(r"^says: (.*?)\n\n", text, re.MULTILINE | re.DOTALL)
    assert set(re.findall(r"`([a-z_]{5,})`", says)) <= FINDINGS
    others = {alert["alert"] for alert in alerts()}
    assert set(re.findall(r"Millrace[A-Z]\w+", text)) <= others
    links = re.findall(r"\]\((?!https?://)([^)#]+)", text)
    assert [link for link in links if not (page.parent / link).exists()] == []
