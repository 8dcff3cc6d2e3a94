"""Controllers to compare: the keeper's, Kubernetes' by utilisation, by queue length, and none."""

from collections import deque
from math import ceil

from jobs.scaling.controller import decide
from jobs.scaling.forecast import BIN_S, Arrivals
from jobs.scaling.history import History
from jobs.scaling.policy import Policy
from jobs.scaling.signals import Signals

_STABLE_S = 300.0  # for which Kubernetes and KEDA keep the highest number, by default


class Autoscaler:
    """The keeper's decisions, with the arrivals that it has seen itself."""

    def __init__(self, policy: Policy, first: int) -> None:
        self.name = "autoscaler"
        self._policy = policy
        self._work: dict[int, list[float]] = {}
        self._means: dict[int, float] = {}
        self._history = History(desired=first, arrivals=Arrivals(self._means))
        self.reasons: list[tuple[float, str, int, str]] = []  #: time, act, replicas, reason

    def decide(self, signals: Signals, served: float) -> int:
        """Implements `Controller.decide`."""
        if not signals.missing:
            bin = int(signals.at_s // BIN_S)
            samples = self._work.setdefault(bin, [])
            samples.append(signals.offered)
            self._means[bin] = sum(samples) / len(samples)
        decision = decide(signals, self._policy, self._history)
        self._history = decision.history
        if decision.act != "stay":
            self.reasons.append((signals.at_s, decision.act, decision.desired, decision.reason))
        return decision.desired


class Static:
    """Always the same number."""

    def __init__(self, replicas: int) -> None:
        self.name = f"static {replicas}"
        self._replicas = replicas

    def decide(self, signals: Signals, served: float) -> int:
        """Implements `Controller.decide`."""
        return self._replicas


class _Stabilized:
    """Keeps the highest number of the last five minutes, as HorizontalPodAutoscalers do."""

    def __init__(self, name: str, most: int) -> None:
        self.name, self._most = name, most
        self._wanted: deque[tuple[float, int]] = deque()

    def decide(self, signals: Signals, served: float) -> int:
        """Implements `Controller.decide`."""
        if not signals.missing:
            wanted = min(max(1, self._raw(signals, served)), self._most)
            self._wanted.append((signals.at_s, wanted))
        while len(self._wanted) > 1 and self._wanted[0][0] < signals.at_s - _STABLE_S:
            self._wanted.popleft()
        return max(wanted for _, wanted in self._wanted)

    def _raw(self, signals: Signals, served: float) -> int:
        raise NotImplementedError


class Hpa(_Stabilized):
    """Kubernetes' HorizontalPodAutoscaler by utilisation of 70 %."""

    def __init__(self, most: int, target: float = 0.7) -> None:
        super().__init__(f"HPA {target:.0%}", most)
        self._target = target

    def _raw(self, signals: Signals, served: float) -> int:
        return ceil(served / self._target - 1e-6)


class QueueLength(_Stabilized):
    """A replica more for each share of waiting calls, as scalers by queue length do."""

    def __init__(self, most: int, per_replica: float = 1.0) -> None:
        super().__init__("queue length", most)
        self._per_replica = per_replica

    def _raw(self, signals: Signals, served: float) -> int:
        busy = ceil(served - 1e-6)
        return busy + ceil(signals.queue / self._per_replica / max(1, busy) - 1e-6)
