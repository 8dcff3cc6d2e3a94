"""Rules, alerts and dashboards, true to the metrics that there are; each alert is shown to fire and
to be silent, and has its page of the runbook."""

import json
import re
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest
import yaml

from jobs.telemetry.gpu_reading import APPLICATION_XIDS
from jobs.telemetry.metrics.metrics import REGISTRY
from ops.grafana.__main__ import FOLDER, text_of
from ops.grafana.dashboards import DASHBOARDS
from tests.support.cases import each
from tests.unit.ops.deploy import kit
from tests.unit.ops.deploy.kit import DEPLOY, TARGET, left_by, load, promtool, series, wrong

SHOWN = ["rules_test.yml", "rules_hours_test.yml", "rules_days_test.yml"]


def cases() -> dict[str, list[Any]]:
    """Alerts that the test files expect, case by case."""
    found: dict[str, list[Any]] = {alert["alert"]: [] for alert in kit.alerts()}
    for file in SHOWN:
        for test in kit.load(kit.PROMETHEUS / file)["tests"]:
            for case in test.get("alert_rule_test", ()):
                found[case["alertname"]].append(case["exp_alerts"])
    return found


def test_a_name_that_nobody_has_is_found() -> None:
    nobodys: list[tuple[str, list[str]]] = [
        ("sum(rate(millrace_calls_total[5m]))", []),
        ("sum(rate(millrace_calls[5m]))", ["millrace_calls"]),
        ("millrace_jobs{state='x',nonsense='y'}", ["millrace_jobs{nonsense}"]),
        ("sum by (model) (millrace_jobs)", ["(model)"]),
        ('millrace_launch_prediction_ratio_bucket{le="1.6"}',
         ['millrace_launch_prediction_ratio_bucket{le="1.6"}']),
        ("millrace:predicted_drain:seconds{pool='gpu'}", []),
        ("millrace:predicted_drain:minutes", ["millrace:predicted_drain:minutes"]),
    ]  # fmt: skip
    for (expression, found), case in each(nobodys, name=itemgetter(0)):
        with case:
            assert list(kit.wrong(expression)) == found


def test_rules_ask_for_what_there_is_which_is_every_metric_of_the_registry() -> None:
    families = {family.name for family in REGISTRY.collect()}
    assert len(families) > 60
    missing = [name for name in families if not any(s.startswith(name) for s in kit.series())]
    assert missing == []
    for rule, case in each(kit.rules(), name=lambda rule: rule.get("alert") or rule["record"]):
        with case:
            assert list(kit.wrong(rule["expr"])) == []


@pytest.mark.heavy
def test_promtool_takes_rules_and_configuration() -> None:
    kit.promtool("check", "rules", kit.RULES, kit.PROMETHEUS / "objectives.yml")
    kit.promtool("check", "config", kit.PROMETHEUS / "prometheus.yml")


@pytest.mark.nightly
def test_alerts_fire_when_they_should_and_only_then() -> None:
    kit.promtool("test", "rules", *SHOWN)


def test_an_alert_is_shown_firing_and_silent_and_says_what_is_wrong_and_where_to_read_on() -> None:
    expected = cases()
    for alert, case in each(kit.alerts(), name=itemgetter("alert")):
        with case:
            assert any(expected[alert["alert"]])
            assert not all(expected[alert["alert"]])
            said = alert["annotations"]
            assert alert["labels"]["severity"] in ("critical", "warning")
            assert said["summary"]
            assert said["runbook"]
            assert "$value" in said["description"] or "absent" in alert["expr"]


def test_the_alert_of_gpu_errors_leaves_out_the_xids_that_why_takes_for_programs() -> None:
    [rule] = [rule for rule in kit.alerts() if rule["alert"] == "MillraceGpuErrors"]
    [left_out] = re.findall(r'xid!~"([\d|]+)"', rule["expr"])
    assert {int(xid) for xid in left_out.split("|")} == APPLICATION_XIDS


RUNBOOK = kit.ROOT / "ops" / "docs" / "runbook"
PAGES = sorted(RUNBOOK.glob("*.md"))
WHY = kit.ROOT / "ops" / "docs" / "how-to" / "operations" / "why.md"
FINDINGS = set(re.findall(r"^\| `(\w+)` \|", WHY.read_text(), re.MULTILINE))
SECTIONS = ["What it means", "Where it shows", "What to do", "Whom to call"]


def test_every_alert_has_its_page_and_every_page_its_alert() -> None:
    named = {(alert["alert"], alert["annotations"]["runbook"]) for alert in kit.alerts()}
    titles = {(page.read_text().split("\n")[0].removeprefix("# "), str(page.relative_to(kit.ROOT)))
              for page in PAGES}  # fmt: skip
    assert named == titles


def test_a_page_tells_all_that_is_needed_at_night() -> None:
    """Names of commands, settings and files are tested with those of all pages."""
    known = {alert["alert"] for alert in kit.alerts()}
    for page, case in each(PAGES, name=lambda page: page.stem):
        with case:
            text = page.read_text()
            assert re.findall(r"^## (.*)", text, re.MULTILINE) == SECTIONS
            severities = {f"Severity: {alert['labels']['severity']}" for alert in kit.alerts()
                          if alert["annotations"]["runbook"].endswith(f"/{page.name}")}  # fmt: skip
            assert severities == set(re.findall(r"Severity: \w+", text))
            assert re.search(r"^1\. ", text, re.MULTILINE)
            [says] = re.findall(r"^says: (.*?)\n\n", text, re.MULTILINE | re.DOTALL)
            assert set(re.findall(r"`([a-z_]{5,})`", says)) <= FINDINGS
            assert set(re.findall(r"Millrace[A-Z]\w+", text)) <= known


PANELS = [(board, panel) for board in DASHBOARDS for panel in board.as_json()["panels"]]


def expressions(panel: dict[str, Any]) -> list[str]:
    return [target["expr"] for target in panel["targets"]]


def test_the_files_are_what_the_generator_makes_with_the_variables_that_panels_use() -> None:
    names = {f"{board.name}.json" for board in DASHBOARDS}
    assert {path.name for path in FOLDER.glob("*.json")} == names
    for board, case in each(DASHBOARDS, name=lambda board: board.name):
        with case:
            assert (FOLDER / f"{board.name}.json").read_text() == text_of(board)
            made = board.as_json()
            used = set(re.findall(r"\$(?!__|\{)(\w+)", json.dumps(made["panels"])))
            assert used == set(board.variables)
            queries = [one["definition"].split("(")[1] for one in made["templating"]["list"][1:]]
            assert [fault for query in queries for fault in wrong(query)] == []


def test_a_panel_asks_for_what_there_is_and_names_labels_that_are_left() -> None:
    for (_, panel), case in each(PANELS, name=lambda one: f"{one[0].name}: {one[1]['title']}"):
        with case:
            assert [fault for text in expressions(panel) for fault in wrong(text)] == []
            assert panel["description"]
            for target in panel["targets"]:
                named = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
                assert named <= left_by(target["expr"], series()) | TARGET


@pytest.mark.heavy
def test_prometheus_can_read_every_expression(tmp_path: Path) -> None:
    texts = [text for _, panel in PANELS for text in expressions(panel)]
    written = [
        {"record": f"panel:{n}", "expr": re.sub(r"\$__rate_interval", "5m", text)}
        for n, text in enumerate(texts)
    ]
    path = tmp_path / "panels.yml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": written}]}))
    promtool("check", "rules", path)


def test_provisioning_finds_the_source_and_the_files() -> None:
    folder = DEPLOY / "grafana" / "provisioning"
    [source] = load(folder / "datasources" / "prometheus.yml")["datasources"]
    [provider] = load(folder / "dashboards" / "millrace.yml")["providers"]
    mounted = load(DEPLOY / "compose.yml")["services"]["grafana"]["volumes"]
    assert source["url"] == "http://prometheus:9090"
    assert any(provider["options"]["path"] in volume for volume in mounted)
