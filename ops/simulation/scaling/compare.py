"""The autoscaler beside a static pool, Kubernetes', a queue's length, and the clairvoyant."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

from jobs.scaling.policy import Policy
from ops.simulation.scaling.controllers import Autoscaler, Hpa, QueueLength, Static
from ops.simulation.scaling.fluid import Controller, Load, Run, simulate
from ops.simulation.scaling.oracle import Clairvoyant, foresee

_STATIC_REFUSES = 0.002  # share that the static pool may refuse


@dataclass(frozen=True, slots=True)
class Comparison:
    """Runs of one load."""

    runs: Sequence[Run]  #: the autoscaler's first
    oracle: Clairvoyant
    mean: float  #: mean work, in replicas

    def over_oracle(self, run: Run) -> float:
        """Returns the time of replicas of a run over the clairvoyant's."""
        return run.replica_s / self.oracle.replica_s


def compare(load: Load, policy: Policy, boot_s: float) -> Comparison:
    """Runs all controllers over a load. boot_s: until a new replica is ready."""
    most = policy.max_replicas
    first = policy.clamp(ceil(load.mean / policy.target_used))
    own = Autoscaler(policy, first)
    controllers: list[Controller] = [own, Hpa(most), QueueLength(most)]
    runs = [simulate(one, load, boot_s, first) for one in controllers]
    runs.append(_best_static(load, most))
    return Comparison(runs, foresee(load, boot_s), load.mean)


def _best_static(load: Load, most: int) -> Run:
    """Returns the run of the fewest replicas that hardly refuse anything, by bisection."""
    low, high = 0, most
    while high - low > 1:
        middle = (low + high) // 2
        run = simulate(Static(middle), load, 0.0, middle)
        low, high = (low, middle) if run.refused <= _STATIC_REFUSES else (middle, high)
    return simulate(Static(high), load, 0.0, high)


def as_json(found: Comparison) -> dict[str, Any]:
    """Returns the figures."""
    return {
        "mean_replicas": round(found.mean, 3),
        "oracle_replica_hours": round(found.oracle.replica_s / 3600, 3),
        "controllers": [
            {
                "name": run.name,
                "replica_hours": round(run.replica_s / 3600, 3),
                "over_oracle": round(found.over_oracle(run), 3),
                "refused": round(run.refused, 5),
                "most": run.most,
                "changes": run.changes,
            }
            for run in found.runs
        ],
    }


def lines(found: Comparison) -> Iterator[str]:
    """Yields the figures as a table."""
    yield (
        f"work of {found.mean:.2f} replicas on average; a clairvoyant needs "
        f"{found.oracle.replica_s / 3600:.1f} replica-hours, and refuses nothing"
    )
    yield f"{'':<14}{'hours':>10}{'x oracle':>10}{'refused':>10}{'most':>7}{'changes':>9}"
    for run in found.runs:
        yield (
            f"{run.name:<14}{run.replica_s / 3600:>10.1f}{found.over_oracle(run):>10.2f}"
            f"{run.refused:>10.2%}{run.most:>7}{run.changes:>9}"
        )
