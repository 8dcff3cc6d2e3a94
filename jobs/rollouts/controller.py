"""Decision about a rollout, from what its launches say and its policy.

    running ── advance ──> running, at the next step
       │ ├──── promote ──> promoted      after the last step
       │ ├──── hold ─────> held ── resume ──> running
       └─┴──── roll_back ─> rolled_back   also from held

A hold for a lack of traffic or of a ready worker ends by itself; any other by a person's word.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from jobs.rollouts.cost import Interval
from jobs.rollouts.evidence import mean
from jobs.rollouts.guardrails import TITLES, Observations
from jobs.rollouts.policy import Policy

Act = Literal["stay", "advance", "hold", "resume", "roll_back", "promote"]
State = Literal["running", "held", "promoted", "rolled_back"]
STATES: tuple[State, ...] = ("running", "held", "promoted", "rolled_back")

NO_TRAFFIC, NO_WORKER = "no traffic", "no ready worker"
"""Beginnings of the reasons of holds that end by themselves."""

_MISSED_IN_A_ROW = 20
_MISMATCH = 0.001
_SUSPICION = 2.0  # evidence from which on more of it is awaited: alike versions rarely have it
_AFTER: dict[Act, State] = {
    "hold": "held",
    "resume": "running",
    "roll_back": "rolled_back",
    "promote": "promoted",
}
_DAMAGE = {
    "failed": "failed",
    "empty": "empty",
    "truncated": "truncated",
    "invalid": "not a number",
}


@dataclass(frozen=True, slots=True)
class RolloutState:
    """A rollout that hasn't ended."""

    state: State
    step: int  #: index among the policy's steps
    step_at_s: float  #: when the step began, since 1970
    reason: str = ""  #: of the state
    load_error: str = ""  #: of the canary, which no worker could load

    def next(self, act: Act, reason: str, now_s: float) -> "RolloutState":
        """Returns the state after an act."""
        if act == "stay":
            return self
        if act == "advance":
            return RolloutState("running", self.step + 1, now_s, reason)
        return RolloutState(_AFTER[act], self.step, self.step_at_s, reason)


@dataclass(frozen=True, slots=True)
class Decision:
    """Act, and why."""

    act: Act
    reason: str
    figures: dict[str, Any] = field(default_factory=dict)  #: see `figures_of`


def decide(
    state: RolloutState, observations: Observations, policy: Policy, now_s: float
) -> Decision:
    """Returns the act that is due now. It may be asked for at any time, and as often as one likes:
    the probability to roll back a version like the one before stays policy.false_alarm."""
    return Decision(*_act(state, observations, policy, now_s))


def _act(state: RolloutState, seen: Observations, policy: Policy, now_s: float) -> tuple[Act, str]:
    if reason := _harm(state, seen, policy):
        return "roll_back", reason
    doubt = _doubt(state, seen, policy, now_s)
    if state.state == "held":
        if state.reason.startswith((NO_TRAFFIC, NO_WORKER)) and not doubt:
            return "resume", "the canary has launches again"
        return "stay", f"held: {state.reason}"
    if doubt:
        return "hold", doubt
    if lack := _lack(state, seen, policy, now_s):
        return "stay", lack
    after = f"after {now_s - state.step_at_s:.0f} s and {_observed(seen)} at "
    after += f"{policy.steps[state.step]:g} % without a finding"
    if state.step + 1 >= len(policy.steps):
        return "promote", after
    return "advance", f"{after}: on to {policy.steps[state.step + 1]:g} %"


def _harm(state: RolloutState, seen: Observations, policy: Policy) -> str:
    """Returns what rolls the canary back; "": nothing."""
    if state.load_error:
        return f"no worker could load the canary: {state.load_error}"
    if lost := seen.lost_in_a_row:
        return f"{lost} launches of the canary in a row gave nothing, those of the control did"
    evidence, total = seen.evidence, _total(seen)
    if total >= 1 / policy.false_alarm:
        worst = max(evidence, key=lambda name: evidence[name])
        return (
            f"{TITLES[worst]}: {_damage(seen, worst)}; chance of that at most "
            f"{1 / total:.1g} if both versions were alike"
        )
    for name, interval in _costs(seen, policy):
        if interval.low > 1 + policy.cost_limit:
            return f"{name} {interval}, beyond the limit of {policy.cost_limit:+.0%}"
    return ""


def _total(seen: Observations) -> float:
    """Returns the evidence of all guardrails together."""
    return mean(list(seen.evidence.values()))


def _damage(seen: Observations, guardrail: str) -> str:
    if guardrail in seen.slow:
        slow = seen.slow[guardrail]
        return f"p95 of the control is {slow.p95:.1f} ms"
    names = ["failed"] if guardrail == "errors" else ["empty", "truncated", "invalid"]
    parts = (
        f"{_DAMAGE[name]} {ours:.2%} of {seen.canary.calls} calls of the canary, {theirs:.2%} of "
        f"{seen.control.calls} of the control"
        for name, ours, theirs in seen.shares()
        if name in names and (ours or theirs)
    )
    return ", ".join(parts)


def _doubt(state: RolloutState, seen: Observations, policy: Policy, now_s: float) -> str:
    """Returns what holds the ramp; "": nothing."""
    silent_s = now_s - max(seen.canary.last_at_s, state.step_at_s)
    missed, silent = seen.missed_in_a_row, silent_s > policy.idle_s
    if missed >= _MISSED_IN_A_ROW or (missed and silent):
        return f"{NO_WORKER}: the stable version answered the canary's last {missed} calls"
    if silent:
        return f"{NO_TRAFFIC}: no launch of the canary for {silent_s:.0f} s"
    if (chance := seen.mismatch) < _MISMATCH:
        return (
            f"{_count(seen.canary)} of the canary and {_count(seen.control)} of the control differ "
            f"more than equal shares do (chance at most {chance:.1g}): something loses or moves "
            "them; compare the lanes' rejections"
        )
    if not policy.accept_cost:
        for name, interval in _costs(seen, policy):
            if interval.low > 1 + policy.cost_hold:
                return f"{name} {interval}: a person may promote it, or roll it back"
    return ""


def _lack(state: RolloutState, seen: Observations, policy: Policy, now_s: float) -> str:
    """Returns what is missing before the next step; "": nothing."""
    stayed_s, launches = now_s - state.step_at_s, seen.at_step
    if stayed_s < policy.min_stay_s:
        return f"{stayed_s:.0f} of {policy.min_stay_s:.0f} s at this step"
    if launches < policy.min_launches:
        return f"{_observed(seen)} of {policy.min_launches} at this step"
    if (total := _total(seen)) >= _SUSPICION:
        return f"evidence of {total:.3g} against the canary: more launches will tell"
    return ""


def _costs(seen: Observations, policy: Policy) -> Iterator[tuple[str, Interval]]:
    for name, ratio in (("device time a call", seen.device), ("price a call", seen.price)):
        if interval := ratio.interval(policy.false_alarm):
            yield name, interval


def _observed(seen: Observations) -> str:
    return f"{seen.at_step} {'callers' if seen.step_canary.units else 'launches'}"


def _count(counts: Any) -> str:
    return f"{len(counts.units)} callers" if counts.units else f"{counts.calls} calls"


def figures_of(seen: Observations, policy: Policy) -> dict[str, Any]:
    """Returns the figures behind a decision, as `rollout_events.figures` has them."""
    return {
        "lanes": {
            name: {
                "launches": lane.launches,
                "calls": lane.calls,
                **({"callers": len(lane.units)} if lane.units else {}),
                **({"missed": lane.missed} if lane.missed else {}),
                "failed": lane.failed,
                "empty": lane.empty,
                "truncated": lane.truncated,
                "invalid": lane.invalid,
                **seen.figures[name].as_json(policy.false_alarm),
            }
            for name, lane in (("canary", seen.canary), ("control", seen.control))
        },
        "at_step": seen.at_step,
        "evidence": {name: float(f"{value:.4g}") for name, value in seen.evidence.items()},
        "alarm_at": len(seen.evidence) / policy.false_alarm,
        "p95_ms": {name: round(one.p95, 3) for name, one in seen.slow.items() if one.p95},
        "cost": {
            name: [round(x, 4) for x in (interval.ratio, interval.low, interval.high)]
            for name, interval in _costs(seen, policy)
        },
        "mismatch": float(f"{seen.mismatch:.3g}"),
    }
