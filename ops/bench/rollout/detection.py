"""Calls of the canary until a regression is found, at a share of five percent and a launch a call.

Simulated launches, judged by the code that the keeper runs; beside each launch of the canary there
is one of the control and eighteen of the rest. Found means: rolled back, or for its cost held.
"""

from collections.abc import Callable, Iterator, Sequence
from math import log

import numpy as np

from jobs.rollouts.controller import Act, RolloutState, decide
from jobs.rollouts.guardrails import Observations
from jobs.rollouts.policy import Policy
from jobs.rollouts.records import LaunchRecord
from ops.bench.harness.platform import say
from ops.bench.harness.scale import Scale
from ops.bench.results.report import Report

ASKED = ("detect_errors <= 530", "detect_latency <= 1065", "detect_cost <= 340")

_REPEATS = 1000
_MOST = 5000  # calls of the canary
_REST = 18  # launches beside each
_STEP = 1  # five percent
_SIGMA, _WORSE = 0.5, log(1.2)
_MEANS = [[_WORSE], [0.0]]  # canary, control
_FAILS, _FAILS_MORE = 0.001, 0.02
_POLICY = Policy(min_stay_s=0.0, min_launches=10**9)

Launches = Iterator[Sequence[LaunchRecord]]
"""By call of the canary: all launches beside it, and its own."""


def measure(report: Report, scale: Scale) -> None:
    """Plays each regression 1,000 times."""
    repeats = int(scale.seconds(_REPEATS))
    for name, draw, found in _REGRESSIONS:
        say(f"{repeats} canaries: {name}")
        calls = [
            _calls_until(found, draw(np.random.default_rng([seed, 11]))) for seed in range(repeats)
        ]
        p50, p90 = np.percentile(calls, (50, 90))
        report.add(**{f"detect_{name}": float(p90), f"detect_{name}_p50": float(p50)})


def _calls_until(act: Act, launches: Launches) -> int:
    """Returns the calls of the canary until this decision; any other than to stay doesn't count."""
    seen, state = Observations(), RolloutState("running", _STEP, 0.0)
    for calls, records in enumerate(launches, 1):
        seen.add(records)
        if decide(state, seen, _POLICY, 0.0).act == act:
            return calls
    return _MOST


def _failing(rng: np.random.Generator) -> Launches:
    """One call in a thousand fails; of the canary's, one in fifty."""
    ours, theirs = rng.random(_MOST) < _FAILS_MORE, rng.random(_MOST) < _FAILS
    rest = rng.binomial(_REST, _FAILS, _MOST)
    for a, b, others in zip(ours, theirs, rest, strict=True):
        yield (
            LaunchRecord(0, "stable", failed=int(others), launches=_REST),
            LaunchRecord(0, "control", failed=int(b)),
            LaunchRecord(0, "canary", failed=int(a)),
        )


def _slower(rng: np.random.Generator) -> Launches:
    """Calls of the canary take a fifth longer."""
    ours, theirs = np.exp(rng.normal(_MEANS, _SIGMA, (2, _MOST)))
    for a, b in zip(ours, theirs, strict=True):
        yield (
            LaunchRecord(0, "control", latency_ms=float(b)),
            LaunchRecord(0, "canary", latency_ms=float(a)),
        )


def _dearer(rng: np.random.Generator) -> Launches:
    """Calls of the canary cost a fifth more."""
    ours, theirs = np.exp(rng.normal(_MEANS, _SIGMA, (2, _MOST)))
    for a, b in zip(ours, theirs, strict=True):
        yield (
            LaunchRecord(0, "control", residual=float(b)),
            LaunchRecord(0, "canary", residual=float(a)),
        )


_REGRESSIONS: tuple[tuple[str, Callable[[np.random.Generator], Launches], Act], ...] = (
    ("errors", _failing, "roll_back"),
    ("latency", _slower, "roll_back"),
    ("cost", _dearer, "hold"),
)
