"""Cohorts of calls: the part of a rollout that a call is in, as `Call.cohort` has it.

canary#ROLLOUT     control#ROLLOUT     in lanes of their own; #CALLER behind, of sticky callers
stable#ROLLOUT                         the rest of the stable version, where launches are counted
missed#ROLLOUT                         of the canary, for which no worker was ready; #CALLER too
shadow                                 a copy (jobs/calls/messages.py)
"""

from typing import NamedTuple, cast

from jobs.rollouts.records import Lane

_LANES = ("canary", "control", "stable", "missed")


class Cohort(NamedTuple):
    """Cohort of a call in a rollout."""

    lane: Lane
    rollout: str  #: id
    caller: str = ""  #: digest of a sticky one


def parse(cohort: str) -> Cohort | None:
    """Reads `Call.cohort`; None: the call is in no rollout."""
    lane, _, rest = cohort.partition("#")
    rollout, _, caller = rest.partition("#")
    return Cohort(cast(Lane, lane), rollout, caller) if lane in _LANES and rollout else None


def own_lanes(cohort: str) -> str:
    """Returns the part of `Call.cohort` that separates lanes: it is the same for all callers, and
    "" for calls that share launches with those of no cohort."""
    if not (found := parse(cohort)):
        return cohort
    return f"{found.lane}#{found.rollout}" if found.lane in ("canary", "control") else ""
