"""Replicas that a pool needs, by each reason for them."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil

from jobs.scaling.forecast import Arrivals
from jobs.scaling.policy import Policy
from jobs.scaling.signals import Signals

_ROUNDING = 1e-6
_PRESSED = 0.01  # share of calls refused, from which one replica more is tried
_LATE = 0.05  # share of calls late, likewise
_LEAST_USED = 0.5  # below it calls are late for another reason than a lack of replicas


@dataclass(frozen=True, slots=True)
class Need:
    """Number of replicas, and why."""

    replicas: int
    reason: str


def floors(policy: Policy, arrivals: Arrivals, at_s: float) -> Iterator[Need]:
    """Yields what is due whatever the load: the minimum, schedules, the forecast."""
    yield Need(policy.min_replicas, f"min_replicas is {policy.min_replicas}")
    for schedule in policy.schedules:
        if schedule.is_due(at_s, policy.boot_s):
            yield Need(schedule.replicas, f"the schedule {schedule.cron!r} asks for them")
    if not policy.forecast:
        return
    work = arrivals.forecast(at_s, policy.boot_s, policy.forecast)
    if work is not None:
        yield Need(
            _for_calls(work, policy.target_used),
            f"at this time there was work for {work:.2f} replicas on {policy.forecast:.0%} of "
            "earlier days",
        )


def by_load(signals: Signals, policy: Policy, ease: float = 1.0) -> Iterator[Need]:
    """Yields what the load needs. ease: factor on the room that is to be left; above 1 for one
    that says when fewer do, so that a load that wavers changes nothing."""
    target = min(1.0, policy.target_used) / ease
    come = "calls" if signals.requests_s is None else "requests"
    yield Need(
        _for_calls(signals.offered, target),
        f"{come} bring the work of {signals.offered:.2f} replicas, to be used for {target:.0%}",
    )
    if signals.busy:
        yield Need(
            ceil(signals.busy * signals.ready * ease - _ROUNDING),
            f"{signals.ready} replicas prepare for {signals.busy:.0%} of their time",
        )
    # Divided by the boot too: what is asked for now helps only after it, and this is asked again.
    within_s = (policy.boot_s + policy.drain_s) / ease
    if signals.backlog_s > 0:
        yield Need(
            ceil(signals.offered + signals.backlog_s / within_s - _ROUNDING),
            f"items that wait are {signals.backlog_s:.0f} s of work of one replica, to be done "
            f"within {within_s:.0f} s beside the calls",
        )


def is_pressed(signals: Signals, least_used: float = _LEAST_USED) -> bool:
    """Returns True if calls are refused or late, and a lack of replicas may be the cause."""
    return signals.used >= least_used and (signals.refused > _PRESSED or signals.late > _LATE)


def under_pressure(signals: Signals, desired: int) -> Need:
    """Returns one replica more, for calls that are refused or late though all are ready: the device
    takes longer than its profile says."""
    return Need(
        desired + 1,
        f"{signals.refused:.1%} of the calls are refused and {signals.late:.1%} late, though all "
        "replicas are ready",
    )


def _for_calls(work: float, target: float) -> int:
    return ceil(work / target - _ROUNDING)
