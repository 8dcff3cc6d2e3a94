"""Rollouts that route calls: a canary beside a control of the same size."""

from dataclasses import dataclass
from typing import Literal

from jobs.models.routing.bucket import BUCKETS
from jobs.models.routing.route import Share, Sticky

Cohort = Literal["", "canary", "control", "stable"]
"""Group of calls of a rollout: canary, control, the rest of the stable version; "": none."""


@dataclass(frozen=True, slots=True)
class ActiveRollout:
    """Rollout that is running or held: it decides over every route of its model.

    The canary has the buckets from 0 on: raising its share takes nobody back. The control has as
    many at the other end, and its calls go to the stable version, as do those between.
    """

    id: str
    name: str  #: of the model
    stable: str  #: version before
    canary: str  #: version that is coming
    percent: float  #: share of the canary at the present step
    sticky: Sticky = ""
    salt: str = ""  #: of this rollout alone

    def cohort_at(self, bucket: int) -> Cohort:
        """Returns the cohort of the calls of a bucket."""
        canary = Share(self.canary, self.percent).buckets
        if bucket < canary:
            return "canary"
        return "control" if bucket >= BUCKETS - min(canary, BUCKETS - canary) else "stable"
