"""Rules and alerts: true to the metrics that there are, and each shown to fire and to be silent."""

from typing import Any

import pytest

from jobs.telemetry.metrics.metrics import REGISTRY
from tests.unit.ops.deploy.kit import (
    PROMETHEUS,
    RULES,
    alerts,
    load,
    promtool,
    rules,
    series,
    wrong,
)

SHOWN = ["rules_test.yml", "rules_hours_test.yml", "rules_days_test.yml"]


def cases() -> list[tuple[str, list[Any]]]:
    """Each alert of the test files, and what is expected of it."""
    return [
        (case["alertname"], case["exp_alerts"])
        for file in SHOWN
        for test in load(PROMETHEUS / file)["tests"]
        for case in test.get("alert_rule_test", ())
    ]


def test_every_metric_of_the_registry_may_be_asked_for() -> None:
    families = {family.name for family in REGISTRY.collect()}
    assert len(families) > 60
    missing = [name for name in families if not any(s.startswith(name) for s in series())]
    assert missing == []


@pytest.mark.parametrize(
    ("expression", "found"),
    [
        ("sum(rate(millrace_calls_total[5m]))", []),
        ("sum(rate(millrace_calls[5m]))", ["millrace_calls"]),
        ("millrace_jobs{state='x',nonsense='y'}", ["millrace_jobs{nonsense}"]),
        ("sum by (model) (millrace_jobs)", ["(model)"]),
        ('millrace_launch_prediction_ratio_bucket{le="1.6"}',
         ['millrace_launch_prediction_ratio_bucket{le="1.6"}']),
        ("millrace:predicted_drain:seconds{pool='gpu'}", []),
        ("millrace:predicted_drain:minutes", ["millrace:predicted_drain:minutes"]),
    ],
)  # fmt: skip
def test_a_name_that_nobody_has_is_found(expression: str, found: list[str]) -> None:
    assert list(wrong(expression)) == found


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule.get("alert") or rule["record"])
def test_rules_ask_for_what_there_is(rule: dict[str, Any]) -> None:
    assert list(wrong(rule["expr"])) == []


def test_promtool_takes_rules_and_configuration() -> None:
    promtool("check", "rules", RULES, PROMETHEUS / "objectives.yml")
    promtool("check", "config", PROMETHEUS / "prometheus.yml")


@pytest.mark.parametrize("file", SHOWN)
def test_alerts_fire_when_they_should_and_only_then(file: str) -> None:
    promtool("test", "rules", file)


@pytest.mark.parametrize("name", sorted({alert["alert"] for alert in alerts()}))
def test_every_alert_is_shown_firing_and_silent(name: str) -> None:
    expected = [found for alert, found in cases() if alert == name]
    assert any(expected)
    assert not all(expected)


@pytest.mark.parametrize("alert", alerts(), ids=lambda alert: alert["alert"])
def test_an_alert_says_what_is_wrong_and_where_to_read_on(alert: dict[str, Any]) -> None:
    said = alert["annotations"]
    assert alert["labels"]["severity"] in ("critical", "warning")
    assert said["summary"]
    assert said["runbook"]
    assert "$value" in said["description"] or "absent" in alert["expr"]
