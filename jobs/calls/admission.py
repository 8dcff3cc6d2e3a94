"""Terms of admission of a call; the api and the simulator share these functions."""

from collections.abc import Sequence
from dataclasses import replace

from jobs.calls.lanes import Terms
from jobs.calls.profile import Profile
from jobs.models.model import Model

_MOST_MARGIN = 0.25  # fraction of the time left: a margin for the target is too much otherwise
_LATE_SHARE = 0.03  # fraction of answers that may be late under load
_STEP = 0.01  # fraction of the target that one late answer adds to the margin


class Margin:
    """Latency budget reserved for HTTP, Redis and a busy machine, which no prediction covers.

    It grows with every late answer and shrinks with every one in time, which holds the late ones
    at a fixed fraction (Robbins and Monro 1951).
    """

    def __init__(self, model: Model) -> None:
        self.target_ms = model.answer_target_ms  #: time in which a call is to be answered
        self.ms = self._least_ms = model.margin_ms
        self._most_ms = max(self._least_ms, _MOST_MARGIN * self.target_ms)
        self._step_ms = _STEP * self.target_ms

    def record(self, *, late: bool) -> None:
        """Adapts the margin to an answer that came in time, or late."""
        step_ms = self._step_ms if late else -self._step_ms * _LATE_SHARE / (1 - _LATE_SHARE)
        self.ms = min(max(self.ms + step_ms, self._least_ms), self._most_ms)


def due_ms(profile: Profile, model: Model, bucket: int, timeout_ms: int) -> int:
    """Returns the time (ms) until an answer is due: the smaller of target and timeout.

    The timeout alone counts where not even the launch of a single call can meet the target.
    """
    times = profile.buckets.get(bucket)
    target_ms = model.answer_target_ms
    if times is None:
        return min(timeout_ms, target_ms)
    alone_ms = times.one_ms if times.alone_ms is None else times.alone_ms
    in_reach = alone_ms + model.margin_ms < target_ms
    return min(timeout_ms, target_ms) if in_reach else timeout_ms


def mixed_terms(
    profiles: Sequence[Profile],
    model: Model,
    bucket: int,
    timeout_ms: int,
    share: float = 1.0,
    margin_ms: float = 0.0,
    tenant: str = "",
) -> Terms:
    """Returns the terms of a call where workers are of several tiers: of the fastest, with those of
    the others. profiles: of each tier, the fastest first; none: nothing is known."""
    profiles = profiles or [Profile()]
    fastest = terms(profiles[0], model, bucket, timeout_ms, share, margin_ms, tenant)
    if len(profiles) == 1:
        return fastest
    known = [
        fastest
        if bucket not in profile.buckets
        else profile.terms(bucket, fastest.slots, fastest.allowed_ms, tenant)
        for profile in profiles[1:]
    ]
    return replace(fastest, others=tuple(known))


def terms(
    profile: Profile,
    model: Model,
    bucket: int,
    timeout_ms: int,
    share: float = 1.0,
    margin_ms: float = 0.0,
    tenant: str = "",
) -> Terms:
    """Returns the terms of a call; share: part of the spare time that its class may wait;
    margin_ms: at least the model's own, which 0 stands for."""
    slots = profile.slots or model.limits.in_flight
    times = profile.buckets.get(bucket)
    if times is None:
        return Terms(slots=slots)
    alone_ms = times.one_ms
    due = due_ms(profile, model, bucket, timeout_ms)
    spare_ms = due - min(margin_ms or model.margin_ms, due * _MOST_MARGIN) - alone_ms
    if model.degrade.shed and spare_ms > 0:
        spare_ms *= share
    return profile.terms(bucket, slots, alone_ms + spare_ms, tenant)
