"""How much must have happened before a rule says anything, and what suffering is."""

from jobs.explain.facts import ModelFacts

CALLS = 20
"""Fewer answers say nothing of a 99th percentile, nor of a mean."""
LAUNCHES = 10
"""Fewer may all be of one odd moment."""
TRIES = 3
"""Of a webhook, of a keeper's duty: one failure is an accident."""

LATE_SHARE = 0.05
"""Of calls miss the target: admission lets three in a hundred be late by design."""

MUCH_WAIT = 0.25
"""Of the target: who waits less than that is not late for it, but refused, perhaps."""

BUSY = 0.9
"""Of the time: beyond it a queue grows faster than it is worked off when anything comes at once."""
IDLE = 0.6
"""Below it devices have time left for what waits."""


def is_late(model: ModelFacts) -> bool:
    """Whether enough of its calls miss their target."""
    return model.calls.judged >= CALLS and model.calls.missed >= LATE_SHARE
