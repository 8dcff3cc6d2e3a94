"""`millrace rollout status`: what it says of one."""

from typing import Any

from tests.support.command_line import run_millrace
from tests.unit.ops.cli.conftest import Client

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
