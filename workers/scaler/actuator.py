"""Actuator `kubernetes`: sets the scale of the Deployment or StatefulSet that is a pool."""

from collections.abc import Callable, Mapping
from typing import Protocol

from jobs import clock
from workers.keeper.scaling.actuators.protocol import ActuatorError
from workers.scaler.workloads import Workload

_TRIES = 3  # where the workload changes between read and write
_CONTESTED_S = 120.0
"""Time for which another's number is a failure; an HPA sets its own every 15 s."""


class Conflict(Exception):
    """Raised where a workload has changed since its scale was read."""


class Scales(Protocol):
    """Scales of workloads; see `Cluster`."""

    def read_scale(self, workload: Workload) -> tuple[int, str]:
        """Returns replicas, and the version of that number."""
        ...

    def set_scale(self, workload: Workload, replicas: int, version: str) -> None:
        """Sets the replicas. Raises Conflict if it isn't that version any more."""
        ...


def leave_choice(pool: str, workload: Workload, fewer: int) -> None:
    """Leaves it to Kubernetes which pods go."""


class KubernetesActuator:
    """Sets the scale of workloads.

    workloads: by pool; choose: called before a workload shrinks, with the number of pods that go.
    """

    def __init__(
        self,
        scales: Scales,
        workloads: Mapping[str, Workload],
        choose: Callable[[str, Workload, int], None] = leave_choice,
    ) -> None:
        self._scales, self._workloads, self._choose = scales, workloads, choose
        self._set: dict[str, int] = {}  # by pool: replicas, as this process left them
        self._contested_s: dict[str, float] = {}  # by pool: when others were seen to set it

    def apply(self, pool: str, replicas: int) -> bool:
        """Implements `Actuator.apply`. A number that others have set is set back, and is a failure
        for a while: two act on one pool."""
        workload = self._workloads.get(pool)
        if workload is None:
            raise ActuatorError(
                f"the policy says `kubernetes`, but MILLRACE_SCALE_WORKLOADS of `millrace scaler` "
                f"has no workload of the pool: add {pool}=NAMESPACE/deployment/NAME"
            )
        before = self._bring(pool, workload, replicas)
        # A write that timed out may have been done: then it is as it should be.
        if before != replicas and self._set.get(pool, before) != before:
            self._contested_s[pool] = clock.monotonic()
        self._set[pool] = replicas
        if clock.monotonic() - self._contested_s.get(pool, -_CONTESTED_S) < _CONTESTED_S:
            raise ActuatorError(
                f"somebody else sets the scale of {workload} too; it was set back. Two must never "
                f"act on one pool: see `kubectl -n {workload.namespace} get hpa,scaledobject`, and "
                "delete what names it, or give the pool the actuator `plan`"
            )
        return before != replicas

    def _bring(self, pool: str, workload: Workload, replicas: int) -> int:
        """Sets the scale where it differs; returns what it was."""
        for _ in range(_TRIES):
            before, version = self._scales.read_scale(workload)
            if before == replicas:
                return before
            try:
                if before > replicas:
                    self._choose(pool, workload, before - replicas)
                self._scales.set_scale(workload, replicas, version)
                return before
            except Conflict:
                continue
        raise ActuatorError(f"{workload} was changed {_TRIES} times between a look and setting it")
