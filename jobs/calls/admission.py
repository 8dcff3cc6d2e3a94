"""On which terms a call is let in. The api and the simulator count by the same functions."""

from jobs.calls.lanes import Terms
from jobs.calls.profile import Profile
from jobs.models.model import Model

_MOST_MARGIN = 0.25
"""Of the time that is left: a margin made for the target is too much for a short timeout."""

_LATE_SHARE = 0.03
"""Of the answers may be late, where calls are let in that wait as long as they may."""
_STEP = 0.01
"""Of the target: what one late answer adds to the margin."""


class Margin:
    """What is kept of a model's target for what no prediction accounts for: HTTP, Redis, a busy
    machine. It grows with every answer that is late and shrinks with every one in time, which
    holds them at that share (Robbins and Monro 1951)."""

    def __init__(self, model: Model) -> None:
        self.ms = self._least_ms = model.margin_ms
        self._most_ms = max(self._least_ms, _MOST_MARGIN * model.target_ms)
        self._step_ms = _STEP * model.target_ms

    def note(self, *, late: bool) -> None:
        """An answer came in time, or late."""
        step_ms = self._step_ms if late else -self._step_ms * _LATE_SHARE / (1 - _LATE_SHARE)
        self.ms = min(max(self.ms + step_ms, self._least_ms), self._most_ms)


def due_ms(profile: Profile, model: Model, bucket: int, timeout_ms: int) -> int:
    """When an answer is due: within the target and the caller's timeout. A target that the launch
    of a single call can't make is none: the timeout is what counts then."""
    times = profile.buckets.get(bucket)
    in_reach = times is None or times.one_ms + model.margin_ms < model.target_ms
    return min(timeout_ms, model.target_ms) if in_reach else timeout_ms


def terms(
    profile: Profile,
    model: Model,
    bucket: int,
    timeout_ms: int,
    share: float = 1.0,
    margin_ms: float = 0.0,
) -> Terms:
    """A lower class may wait for a share of the time that its launch and the margin leave."""
    slots = profile.slots or model.limits.in_flight
    times = profile.buckets.get(bucket)
    if times is None:
        return Terms(slots=slots)
    alone_ms = times.one_ms
    due = due_ms(profile, model, bucket, timeout_ms)
    spare_ms = due - min(max(margin_ms, model.margin_ms), due * _MOST_MARGIN) - alone_ms
    if model.degrade.shed and spare_ms > 0:
        spare_ms *= share
    return profile.terms(bucket, slots, alone_ms + spare_ms)
