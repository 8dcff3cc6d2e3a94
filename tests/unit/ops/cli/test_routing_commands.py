"""`millrace models route` and `millrace rollout status`: what they send, and what they say."""

from typing import Any

import pytest

from tests.support.command_line import run_millrace
from tests.unit.ops.cli.conftest import Client

ROUTE = {
    "tenant": "*", "sticky": "user",
    "shadow": {"version": "3", "percent": 10.0, "copies": {"1": {"equal": 1200, "shed": 3}}},
    "splits": [{"version": "1", "percent": 95.0}, {"version": "2", "percent": 5.0}],
}  # fmt: skip


@pytest.fixture(autouse=True)
def _routes(client: Client) -> None:
    for name in ("a%2Fb", "m"):
        client.answers[f"/admin/models/{name}"] = [{"routes": [ROUTE], "data": []}]


def run(*arguments: str, status: int = 0) -> str:
    return run_millrace("models", "route", *arguments, status=status).output


def test_shares_are_sent_in_their_order_and_shown(client: Client) -> None:
    said = run("a/b", "1=95", "2=5", "--sticky", "user", "--shadow", "3=10")
    [(method, path, body)] = client.sent
    assert (method, path) == ("PUT", "/admin/models/a%2Fb/routes/%2A")
    assert body == {
        "splits": ROUTE["splits"], "sticky": "user", "shadow": {"version": "3", "percent": 10.0},
    }  # fmt: skip
    assert said == (
        "all tenants  1=95 2=5  sticky by user  shadow 3=10\n"
        "    copies for 3 of calls that 1 answered: 1,200 equal, 3 shed\n"
    )


def test_without_right_shares_it_changes_nothing_and_may_remove_a_route(client: Client) -> None:
    assert "1=95" in run("m")
    assert client.sent == []
    assert "goes with the shares" in run("m", "--shadow", "2=5", status=2)
    assert "'2' is no VERSION=PERCENT" in run("m", "1=95", "2", status=2)
    assert client.sent == []
    assert run("m", "--tenant", "acme", "--remove") == "removed\n"
    assert client.sent == [("DELETE", "/admin/models/m/routes/acme", None)]


LANE = {"launches": 300, "calls": 2400, "failed": 0, "empty": 0, "truncated": 0, "invalid": 0}
FIGURES = {
    "lanes": {
        "canary": LANE
        | {"failed": 12, "failed_share": [0.04, 0.012, 0.093], "latency_ms": [11.0, 24.0]}
        | {"device_ms": 1.25, "price": 0.0021},
        "control": {**LANE, "failed_share": [0.0, 0.0, 0.034], "latency_ms": [10.0, 21.5]},
    },
    "evidence": {"errors": 22.36, "latency": 1.0, "ttft": 1.0, "itl": 1.0, "output": 1.0},
    "alarm_at": 500.0,
    "cost": {"price a call": [1.11, 1.04, 1.18]},
    "mismatch": 1.0,
}
ROLLOUT: dict[str, Any] = {
    "id": "rollout_1", "model": "m", "stable": "1", "canary": "2", "state": "running", "step": 1,
    "percent": 5.0, "reason": "", "policy": {"steps": [1.0, 5.0, 100.0], "cost_limit": 0.5},
    "waits_for": "120 launches of 200 at this step", "figures": FIGURES,
    "events": [
        {"at": "2026-05-01T10:05:00Z", "act": "advance", "actor": "keeper", "reason": "on to 5 %"},
        {"at": "2026-05-01T10:00:00Z", "act": "start", "reason": "1 to 2, by key_1"},
    ],
}  # fmt: skip


def status(client: Client, found: dict[str, Any], *more: str) -> str:
    client.answers["/rollouts/m"] = [found]
    return run_millrace("rollout", "status", "m", *more).output


def test_a_rollout_is_told_with_lanes_evidence_costs_and_history(client: Client) -> None:
    said = status(client, ROLLOUT).splitlines()
    assert said[:3] == [
        "rollout_1  m 1 to 2  running at 5 %",
        "steps: 1 %  [5 %]  100 %",
        "waits for: 120 launches of 200 at this step",
    ]
    for expected in (
        "  lanes                     canary                control",
        "  Failed calls              12                    0",
        "  Share with a failed call  4.00% (1.20 to 9.30)  0.00% (0.00 to 3.40)",
        "  Latency p50 / p95         11.0 / 24.0 ms        10.0 / 21.5 ms",
        "  Device time a call        1.25 ms               –",
        "  errors   [##########..........] 22.4, rolls back at 500",
        "  all      [#######.............] 5.27, rolls back at 100",
        "  price a call: +11.0% (+4.0% to +18.0%); held above +0%, rolled back above +50%",
        "  2026-05-01T10:00:00Z  start      -  1 to 2, by key_1",
        "  2026-05-01T10:05:00Z  advance    keeper  on to 5 %",
    ):
        assert expected in said, "\n".join(said)


def test_a_rollout_of_an_older_release_has_no_figures(client: Client) -> None:
    older = {name: ROLLOUT[name] for name in ROLLOUT if name not in ("figures", "waits_for")}
    assert "no figures yet" in status(client, older)
    assert '"id": "rollout_1"' in status(client, older, "--json")
