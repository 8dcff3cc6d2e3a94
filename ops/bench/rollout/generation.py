"""Calls that generate, of simulated rollouts: each version has a host, whose steps they share.

A host stalls now and then (a long prompt of another call, a pause of the machine), which delays all
calls that it has, and its engine dies, which fails all of them.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jobs.rollouts.records import LaunchRecord

_CALLS_PER_S = 2.0  # of each lane
_STALL_EVERY_S, _STALL_S = 20.0, 1.0  # means
_DEATH_EVERY_S = 300.0
_CALL_FAILS, _LENGTH = 0.002, 0.2  # share of calls, and of those cut at their longest length
_TTFT_MS, _ITL_MS, _TOKENS = 150.0, 20.0, 200.0  # medians
_SIGMA = 0.5

Floats = NDArray[np.float64]


def calls(count: int, rng: np.random.Generator) -> Iterator[LaunchRecord]:
    """Yields calls of both lanes as they end, with their times from 0 on."""
    lanes = [_host(lane, count // 2, rng) for lane in ("canary", "control")]
    yield from sorted((one for lane in lanes for one in lane), key=lambda one: one.at_s)


def _host(lane: Any, count: int, rng: np.random.Generator) -> Iterator[LaunchRecord]:
    arrived_s = np.cumsum(rng.exponential(1 / _CALLS_PER_S, count))
    stalls = _Stalls(arrived_s[-1], rng)
    tokens = np.maximum(2, _TOKENS * np.exp(rng.normal(0, _SIGMA, count)))
    ttft_s = _TTFT_MS / 1000 * np.exp(rng.normal(0, _SIGMA, count)) + stalls.left_at(arrived_s)
    decode_s = tokens * _ITL_MS / 1000 * np.exp(rng.normal(0, 0.1, count))
    first_s = arrived_s + ttft_s
    decode_s = decode_s + stalls.between(first_s, first_s + decode_s)
    ended_s = first_s + decode_s
    died_s = np.cumsum(rng.exponential(_DEATH_EVERY_S, 2 + int(ended_s[-1] / 60)))
    death = died_s[np.searchsorted(died_s, arrived_s)]
    failed = (death < ended_s) | (rng.random(count) < _CALL_FAILS)
    truncated = rng.random(count) < _LENGTH
    for n in range(count):
        end_s = min(float(ended_s[n]), float(death[n]))
        yield LaunchRecord(
            end_s, lane, 1, int(failed[n]),
            ttft_ms=float(ttft_s[n]) * 1000, itl_ms=float(decode_s[n] / tokens[n]) * 1000,
            lasted_ms=(end_s - float(arrived_s[n])) * 1000, price=float(tokens[n]),
            truncated=int(truncated[n]),
        )  # fmt: skip


class _Stalls:
    """Stalls of one host, none of which overlap."""

    def __init__(self, until_s: float, rng: np.random.Generator) -> None:
        count = 2 + int(2 * until_s / _STALL_EVERY_S)
        self._lasts_s = rng.exponential(_STALL_S, count)
        gaps_s = rng.exponential(_STALL_EVERY_S, count)
        self._begins_s = np.cumsum(gaps_s + self._lasts_s) - self._lasts_s
        self._sums_s = np.concatenate([[0.0], np.cumsum(self._lasts_s)])

    def left_at(self, at_s: Floats) -> Floats:
        """Returns the rest of the stall that there is at each time."""
        last = np.searchsorted(self._begins_s, at_s) - 1
        ends_s = self._begins_s[last] + self._lasts_s[last]
        return np.where(last >= 0, np.maximum(0.0, ends_s - at_s), 0.0)

    def between(self, since_s: Floats, until_s: Floats) -> Floats:
        """Returns the length of the stalls that begin between two times."""
        since, until = (np.searchsorted(self._begins_s, times) for times in (since_s, until_s))
        lasted_s: Floats = self._sums_s[until] - self._sums_s[since]
        return lasted_s
