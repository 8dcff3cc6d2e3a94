"""Rollouts on two workers under 100 calls a second: of a version that fails calls, which must be
rolled back and lose none, and of one that costs more at equal latency, which must be held."""

from typing import Any

from jobs import clock, ids
from jobs.calls.streams.rollout import StreamReader
from jobs.rollouts.controller import RolloutState, decide
from jobs.rollouts.guardrails import Observations
from jobs.rollouts.policy import parse
from jobs.store.registry.rollouts import ID_PREFIX
from ops.bench.harness.errors import BenchError
from ops.bench.harness.platform import say, wait_until
from ops.bench.harness.scale import Scale
from ops.bench.results.report import Report
from ops.bench.rollout.traffic import Answer, traffic
from ops.bench.rollout.versions import FAILURE, NAME, Target, Version, target_of
from workers.keeper.rollouts.residuals import Residuals

ASKED = ("rollback_s <= 5", "lost_calls <= 0", "cost_held >= 1")

_PER_S = 100.0
_PERCENT = 5.0  # of the canary, as of the control
_FAILS, _DEARER = 0.05, 1.1
_PRICE = 1.0  # of a thousand characters
_POLICY = {"min_stay_s": 5, "min_launches": 500, "idle_s": 60}
_DECIDED_WITHIN_S = 300.0
_AFTER_S = 6.0  # that calls go on


def measure(report: Report, scale: Scale) -> None:
    """Rolls out the one that fails, then the one that costs more. In a trial both get a larger
    share, and so are found sooner."""
    policy = {**_POLICY, "steps": [_PERCENT / scale.share, 50, 100]}
    versions = (
        Version("1", price=_PRICE),
        Version("2", price=_PRICE, fails=_FAILS),
        Version("3", price=_DEARER * _PRICE),
    )
    with target_of(*versions) as target:
        failing, calls = _roll_out(target, "2", policy)
        decided_s = _decided_s(target, failing)
        dear, more = _roll_out(target, "3", policy)
    ends = [one.ended_s for one in calls if one.version == "2"]
    report.add(
        rollback_s=max(ends) - decided_s,
        canary_calls=len(ends),
        cost_held=dear["state"] == "held" and dear["reason"].startswith("price a call"),
        calls=len(calls) + len(more),
        lost_calls=sum(_is_lost(one) for one in (*calls, *more)),
    )


def _roll_out(target: Target, canary: str, policy: dict[str, Any]) -> tuple[Any, list[Answer]]:
    """Rolls a version out under calls, until the keeper has decided. Returns the rollout and the
    calls."""
    with traffic(target.fleet.urls, NAME, _PER_S) as made:
        id = target.start(canary, **policy)

        def decided() -> bool:
            """Returns True once the keeper has acted."""
            return bool(target.rollout(id)["state"] != "running")

        wait_until(decided, f"version {canary} is rolled back or held", _DECIDED_WITHIN_S)
        rollout = target.rollout(id)
        say(f"version {canary} is {rollout['state']}: {rollout['reason']}")
        clock.sleep(_AFTER_S)
        if rollout["state"] == "held":
            target.ask("POST", f"/rollouts/{id}/rollback", {"reason": "the benchmark is over"})
    return rollout, made.answers


def _decided_s(target: Target, rollout: Any) -> float:
    """Returns when the launch ended that the rollback was decided by, in seconds since 1970: what
    the keeper read is judged again, launch by launch. Raises BenchError where it wasn't."""
    reader = StreamReader(target.fleet.redis, str(ids.parse(ID_PREFIX, rollout["id"])))
    policy, state = parse(rollout["policy"]), RolloutState("running", 0, 0.0)
    seen, residuals = Observations(), Residuals()
    while records := reader.read():
        for record in records:
            seen.add([residuals.with_residual(record)])
            if decide(state, seen, policy, record.at_s).act == "roll_back":
                return record.at_s
    raise BenchError(f"version 2 was not rolled back by its launches: {rollout['reason']}")


def _is_lost(call: Answer) -> bool:
    """Returns True for a call that got neither an answer nor the error of its version."""
    return call.status != 200 and FAILURE not in call.output
