"""The runbook: a page for each alert, an alert for each page, and all that they name."""

import re

from tests.support.cases import each
from tests.unit.ops.deploy.kit import ROOT, alerts

RUNBOOK = ROOT / "ops" / "docs" / "runbook"
PAGES = sorted(RUNBOOK.glob("*.md"))
WHY = ROOT / "ops" / "docs" / "how-to" / "operations" / "why.md"
FINDINGS = set(re.findall(r"^\| `(\w+)` \|", WHY.read_text(), re.MULTILINE))
SECTIONS = ["What it means", "Where it shows", "What to do", "Whom to call"]


def test_every_alert_has_its_page_and_every_page_its_alert() -> None:
    named = {(alert["alert"], alert["annotations"]["runbook"]) for alert in alerts()}
    titles = {(page.read_text().split("\n")[0].removeprefix("# "), str(page.relative_to(ROOT)))
              for page in PAGES}  # fmt: skip
    assert named == titles


def test_a_page_tells_all_that_is_needed_at_night() -> None:
    """Names of commands, settings and files are tested with those of all pages."""
    known = {alert["alert"] for alert in alerts()}
    for page, case in each(PAGES, name=lambda page: page.stem):
        with case:
            text = page.read_text()
            assert re.findall(r"^## (.*)", text, re.MULTILINE) == SECTIONS
            severities = {f"Severity: {alert['labels']['severity']}" for alert in alerts()
                          if alert["annotations"]["runbook"].endswith(f"/{page.name}")}  # fmt: skip
            assert severities == set(re.findall(r"Severity: \w+", text))
            assert re.search(r"^1\. ", text, re.MULTILINE)
            [says] = re.findall(r"^says: (.*?)\n\n", text, re.MULTILINE | re.DOTALL)
            assert set(re.findall(r"`([a-z_]{5,})`", says)) <= FINDINGS
            assert set(re.findall(r"Millrace[A-Z]\w+", text)) <= known
