"""Rollouts of a version that is the one before: how many are rolled back, or held.

Simulated launches, judged by the code that the keeper runs. Calls of a launch are not independent:
some launches fail as a whole, and all calls of one end together. Sticky callers differ from each
other: in how many of their calls fail, and how long these take. Calls that generate share delays.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from jobs.rollouts.controller import RolloutState, decide
from jobs.rollouts.guardrails import Observations
from jobs.rollouts.policy import Policy
from jobs.rollouts.records import Lane, LaunchRecord
from ops.bench.harness.platform import say
from ops.bench.harness.scale import Scale
from ops.bench.results.report import Report
from ops.bench.rollout import generation
from ops.bench.rollout.callers import Callers

ASKED = (
    "false_rollback_share <= 0.01",
    *(f"false_rollback_share_{n}_a_launch <= 0.01" for n in (1, 8, 32)),
    *(f"false_rollback_share_{n}_users <= 0.01" for n in (40, 1000)),
    "false_rollback_share_users_8_a_launch <= 0.01",
    "false_rollback_share_generation <= 0.01",
    "false_rollback_share_rare <= 0.01",
    "false_hold_share_rare <= 0.02",
)

_ROLLOUTS, _FEW = 200, 50
_LAUNCHES = 1500  # at each step
_LOOK_EVERY = 25  # launches
_LAUNCH_FAILS, _CALL_FAILS = 0.005, 0.002
_SIGMA = 0.5  # of the logarithms of latency and cost
_DAILY = 0.3  # their swing over a day
#: Limits that let each look decide: a rollout stays at each step for all of its launches.
_POLICY = Policy(min_stay_s=0.0, min_launches=10**9)

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Setting:
    """Traffic of a simulated rollout."""

    name: str  #: of its figure
    calls: int = 1  #: of a launch
    users: int = 0  #: sticky callers; 0: none
    generates: bool = False
    launches: int = _LAUNCHES  #: of both lanes, at each step
    every_s: float = 1.0  #: between two launches
    rollouts: int = _ROLLOUTS


SETTINGS = (
    *(Setting(f"{n}_a_launch", calls=n) for n in (1, 8, 32)),
    *(Setting(f"{n}_users", users=n) for n in (40, 1000)),
    Setting("users_8_a_launch", calls=8, users=1000, launches=_LAUNCHES // 3, rollouts=2 * _FEW),
    Setting("generation", generates=True),
    Setting("rare", launches=5 * _LAUNCHES, every_s=60.0, rollouts=_FEW),  # for weeks
)


def measure(report: Report, scale: Scale) -> None:
    """Rolls each setting out as often as it says."""
    shares = []
    for setting in SETTINGS:
        rollouts = int(scale.seconds(setting.rollouts))
        say(f"{rollouts} rollouts: {setting.name}")
        acts = [_roll_out(setting, np.random.default_rng([seed, 7])) for seed in range(rollouts)]
        shares.append(acts.count("roll_back") / rollouts)
        report.add(
            **{
                f"false_rollback_share_{setting.name}": shares[-1],
                f"false_hold_share_{setting.name}": acts.count("hold") / rollouts,
            }
        )
    report.add(false_rollback_share=max(shares))


def _roll_out(setting: Setting, rng: np.random.Generator) -> str:
    """Returns the worst act of a rollout to the end: "roll_back", "hold" or "stay"."""
    seen, now_s, worst = Observations(), 0.0, "stay"
    users = Callers(setting.users, setting.calls, rng) if setting.users else None
    for step, percent in enumerate(_POLICY.steps[:-1]):
        seen.begin_step(now_s)
        state, began_s = RolloutState("running", step, now_s), now_s
        for n, (at_s, records) in enumerate(_drawn(setting, users, percent, rng)):
            now_s = began_s + at_s
            seen.add(replace(record, at_s=now_s) for record in records)
            if n % _LOOK_EVERY == 0:
                act = decide(replace(state, step_at_s=now_s), seen, _POLICY, now_s).act
                if act == "roll_back":
                    return act
                worst = "hold" if act == "hold" else worst
    return worst


def _drawn(
    setting: Setting, users: Callers | None, percent: float, rng: np.random.Generator
) -> Iterator[tuple[float, Sequence[LaunchRecord]]]:
    """Yields each launch at one step: its time from 0 on, and its records."""
    if setting.generates:
        yield from ((call.at_s, [call]) for call in generation.calls(setting.launches, rng))
        return
    drawn = users.launches(percent, setting.launches) if users else _launches(setting, percent, rng)
    for n, records in enumerate(drawn, 1):
        yield n * setting.every_s, records


def _launches(
    setting: Setting, percent: float, rng: np.random.Generator
) -> Iterator[Sequence[LaunchRecord]]:
    """Yields launches of both lanes, of calls that fell on one by chance, and of the rest."""
    calls, count = setting.calls, setting.launches
    on_canary = rng.random(calls * count) < 0.5
    full = [np.flatnonzero(lane)[calls - 1 :: calls] for lane in (on_canary, ~on_canary)]
    ends: list[tuple[int, Lane]] = [(at, "canary") for at in full[0]]
    ends = sorted([*ends, *((at, "control") for at in full[1])])
    rest = max(0, round((100 - 2 * percent) / percent / 2))  # launches beside each
    failed = _failed(len(ends), calls, rng)
    rest_failed = (_failed(len(ends) * rest, calls, rng) > 0).reshape(len(ends), rest).sum(axis=1)
    day = np.sin(2 * np.pi * np.arange(len(ends)) * setting.every_s / 86_400)
    latency, cost, price = np.exp(rng.normal(0, _SIGMA, (3, len(ends))) + _DAILY * day)
    for n, (_, lane) in enumerate(ends):
        if rest:
            yield [LaunchRecord(0, "stable", failed=int(rest_failed[n]), launches=rest)]
        record = LaunchRecord(
            0.0, lane, calls, int(failed[n]), latency_ms=float(latency[n]),
            residual=float(cost[n]), price=float(price[n]) * calls,
        )  # fmt: skip
        yield [record]


def _failed(launches: int, calls: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Draws failed calls of launches: some launches fail as a whole."""
    single: NDArray[np.int64] = rng.binomial(calls, _CALL_FAILS, launches)
    return np.where(rng.random(launches) < _LAUNCH_FAILS, calls, single)
