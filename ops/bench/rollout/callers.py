"""Sticky callers of simulated rollouts, who differ from each other."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from jobs.rollouts.records import LaunchRecord

_SIGMA, _CALLER_SIGMA = 0.5, 0.3  # of the logarithms of latency and cost
_SHARED = 0.2
_LAUNCH_FAILS = 0.005


class Callers:
    """Callers of whom few have most of the calls, and a few most of the errors."""

    def __init__(self, count: int, calls: int, rng: np.random.Generator) -> None:
        """calls: of a launch, each of another caller."""
        self._calls, self._rng = calls, rng
        self._bucket = rng.random(count) * 100
        self._activity = rng.lognormal(0, 1, count)
        self._fails = rng.beta(0.2, 20, count)
        self._latency, self._cost, self._price = rng.normal(0, _CALLER_SIGMA, (3, count))
        if calls > 1:  # of launches that callers share, the model of their size predicts the most
            self._cost *= _SHARED

    def launches(self, percent: float, count: int) -> Iterator[Sequence[LaunchRecord]]:
        """Yields launches of those who are in a lane, as records of each."""
        canary, control = self._bucket < percent, self._bucket >= 100 - percent
        lanes = [("canary", np.flatnonzero(canary)), ("control", np.flatnonzero(control))]
        traffic = np.array([self._activity[who].sum() for _, who in lanes])
        if not traffic.sum():
            return
        chosen = self._rng.random(count) < traffic[0] / traffic.sum()
        for on_canary in chosen:
            lane, who = lanes[0 if on_canary else 1]
            # The first of an exponential race, by activity: a draw without replacement.
            order = self._rng.exponential(1 / self._activity[who])
            calls = min(self._calls, len(who))
            yield self._launch(lane, who[np.argpartition(order, calls - 1)[:calls]])

    def _launch(self, lane: Any, callers: Any) -> Sequence[LaunchRecord]:
        """Returns the records of a launch: its time is the same for all callers in it."""
        rng, calls = self._rng, len(callers)
        failed = rng.random(calls) < self._fails[callers]
        if calls > 1 and rng.random() < _LAUNCH_FAILS:
            failed[:] = True
        noise = rng.normal(0, _SIGMA, 3)
        latency = float(np.exp(noise[0] + self._latency[callers].max()))
        cost = float(np.exp(noise[1] + self._cost[callers].mean()))
        prices = np.exp(noise[2] + self._price[callers])
        return [
            LaunchRecord(
                0.0,
                lane,
                failed=int(failed[n]),
                unit=str(caller),
                latency_ms=latency,
                residual=cost,
                price=float(prices[n]),
                launches=int(n == 0),
            )
            for n, caller in enumerate(callers)
        ]
