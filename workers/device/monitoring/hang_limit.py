"""Time after which a launch counts as hung: three times its prediction, where that is trusted."""

from jobs.models.model import Limits
from workers.scheduler.entries import Launch
from workers.scheduler.latency import LatencyModel

_TIMES = 3.0  # what 95 % of such launches take at most
_LEAST_S = 1.0
_TRUSTED_LAUNCHES = 20  # fewer say too little of how much launches differ


def hang_limit_s(limits: Limits, latency: LatencyModel, launch: Launch, *, alone: bool) -> float:
    """Returns the seconds that a launch may take, `max_launch_s` at most.

    What was in a launch that hung gets all of `max_launch_s` when it runs again, alone: it may just
    be slow. alone: its items run alone."""
    if alone or launch.calls_alone or latency.launches < _TRUSTED_LAUNCHES:
        return limits.max_launch_s
    return min(limits.max_launch_s, max(_LEAST_S, _TIMES * launch.predicted_s * latency.p95_ratio))
