"""Spot part of a pool's replicas: how many of them may be reclaimed, and what stands in for those
that are missing (SpotHedge, https://arxiv.org/abs/2411.01438)."""

from dataclasses import dataclass
from math import ceil

from jobs.scaling.policy import Policy

_ROUNDING = 1e-6
_SPARE = 1  # spot replicas more than the share: one that is reclaimed leaves no gap


@dataclass(frozen=True, slots=True)
class Split:
    """Replicas of a pool that were decided on, by kind."""

    on_demand: int
    spot: int


def split(desired: int, coming: int, policy: Policy) -> Split:
    """Splits replicas. coming: spot replicas that are ready or load; as many on-demand ones as are
    missing stand in for the others."""
    stay = max(policy.on_demand_floor, ceil((1 - policy.spot_share) * desired - _ROUNDING))
    spot = max(0, desired - stay)
    if not spot:
        return Split(desired, 0)
    return Split(max(stay, desired - coming), spot + _SPARE)
