"""On which terms a call is let in. The api and the simulator count by this one function."""

from jobs.calls.lanes import Terms
from jobs.calls.profile import Profile
from jobs.registry import Model

_MOST_MARGIN = 0.25
"""Of the time that is left: a margin made for the target is too much for a short timeout."""


def terms(
    profile: Profile, model: Model, bucket: int, timeout_ms: int, share: float = 1.0
) -> Terms:
    """An answer is due within the target and the caller's timeout, less a margin. A lower class
    may wait for a share of the time that leaves beside its launch. A target that the launch of a
    single call can't make is none: the timeout is what counts then."""
    slots = model.limits.in_flight
    times = profile.buckets.get(bucket)
    if times is None:
        return Terms(slots=slots)
    alone_ms = times.one95_ms
    in_reach = alone_ms + model.margin_ms < model.target_ms
    due_ms = min(timeout_ms, model.target_ms) if in_reach else timeout_ms
    spare_ms = due_ms - min(model.margin_ms, due_ms * _MOST_MARGIN) - alone_ms
    if model.degrade.shed and spare_ms > 0:
        spare_ms *= share
    return profile.terms(bucket, slots, alone_ms + spare_ms)
