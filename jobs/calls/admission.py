"""On which terms a call is let in: the api's side of what workers measured."""

from jobs.calls.lanes import Terms
from jobs.calls.profile import Profile
from jobs.registry import Model


def terms(
    profile: Profile, model: Model, bucket: int, timeout_ms: int, share: float = 1.0
) -> Terms:
    """An answer is due within the target and the caller's timeout, less a margin. share: of the
    time that leaves beside its launch, how much this call may wait. A target that the launch of a
    single call can't make is none: the timeout is what counts then."""
    slots = model.limits.in_flight
    times = profile.buckets.get(bucket)
    if times is None:
        return Terms(slots=slots)
    alone_ms = times.one95_ms
    target_ms = model.target_ms if alone_ms + model.margin_ms < model.target_ms else timeout_ms
    spare_ms = min(target_ms, timeout_ms) - model.margin_ms - alone_ms
    return profile.terms(bucket, slots, alone_ms + (spare_ms * share if spare_ms > 0 else spare_ms))
