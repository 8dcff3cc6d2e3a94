"""A real Prometheus reads a running platform: the rules work on what processes really tell."""

import re
from collections.abc import Iterator
from contextlib import closing, suppress
from typing import Any

import httpx
import pytest
import yaml

from millrace import Client
from ops.grafana.dashboards import DASHBOARDS
from ops.processes.ports import free_ports
from ops.supervisor.platform import Platform
from tests.support.clients import chat
from tests.support.models.entries import model
from tests.support.platforms import LIGHT, Platforms, spec
from tests.support.servers.prometheus import MISSING, ask, installed, scraping
from tests.support.wait import eventually
from tests.unit.ops.deploy.kit import PROMETHEUS, RULES

pytestmark = pytest.mark.nightly

RARE = (
    "errors_total|retries_total|deaths|reaped|leases_lost|stuck|failed|upstream|webhook_attempts"
    "|transfers_total|tenant_share_ratio|num_preemptions|prefix_cache_hits"
    "|device_(active|throttled|power|temperature|ecc|xid)"
)
"""Metrics that a platform which is well, has just begun and has no GPU may lack."""
TALK = model("talk", "echo_chat", step_ms=2)


@pytest.fixture(scope="module")
def platform(platforms: Platforms) -> Iterator[Platform]:
    if not installed():
        pytest.skip(MISSING)
    with platforms.running(spec(LIGHT + TALK), metrics_port=free_ports(8)[0]) as started:
        yield started


@pytest.fixture(scope="module")
def prometheus(
    platform: Platform, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[httpx.Client]:
    rules = (RULES, PROMETHEUS / "objectives.yml")
    with scraping(platform, tmp_path_factory.mktemp("prometheus"), rules) as client:
        yield client


@pytest.fixture(scope="module")
def worked(platform: Platform, prometheus: httpx.Client) -> None:
    """A job and calls, until Prometheus has seen them grow."""
    with closing(Client(platform.url)) as client:
        job = client.jobs.submit("echo", ["text"] * 300).id

        def seen() -> bool:
            assert client.infer("echo", "text")
            assert client.infer("talk", chat("a b c"))
            growing = ask(prometheus, "rate(millrace_call_target_total[10s]) > 0")
            return {one["metric"]["model"] for one in growing} == {"echo@1", "talk@1"}

        eventually(seen)
        assert client.jobs.wait(job)["state"] == "completed"


def test_every_rule_can_be_evaluated_and_recorded_series_have_values(
    prometheus: httpx.Client, worked: None
) -> None:
    def evaluated() -> list[dict[str, Any]] | None:
        groups = prometheus.get("/rules").json()["data"]["groups"]
        found = [rule for group in groups for rule in group["rules"]]
        return None if any(rule["health"] == "unknown" for rule in found) else found

    rules = eventually(evaluated)
    assert len(rules) > 40
    assert [rule["name"] for rule in rules if rule["health"] != "ok"] == []
    assert [rule["name"] for rule in rules if rule.get("state") == "firing"] == []
    for series in (
        "millrace:call_target:objective == 0.99",
        "millrace:predicted_drain:seconds >= 0",
    ):
        assert ask(prometheus, series), series


def test_the_pools_scale_by_one_number(prometheus: httpx.Client, worked: None) -> None:
    path = PROMETHEUS.parent / "kubernetes" / "overlays" / "cpu" / "keda.yaml"
    *_, scaled = yaml.safe_load_all(path.read_text())
    for trigger in scaled["spec"]["triggers"]:
        query = trigger["metadata"]["query"].replace('"cpu"', '"default"')
        eventually(lambda query=query: len(ask(prometheus, query)) == 1)


def test_panels_show_something(prometheus: httpx.Client, worked: None) -> None:
    asked = [
        re.sub(r"\$(model|pool)", ".*", target["expr"]).replace("$__rate_interval", "10s")
        for board in DASHBOARDS
        for panel in board.as_json()["panels"]
        for target in panel["targets"]
    ]
    waiting = {text for text in asked if not re.search(RARE, text)}
    assert len(waiting) > 50

    def all_shown() -> bool:
        waiting.difference_update([text for text in waiting if ask(prometheus, text)])
        return not waiting

    with suppress(AssertionError):
        eventually(all_shown)
    assert sorted(waiting) == []
