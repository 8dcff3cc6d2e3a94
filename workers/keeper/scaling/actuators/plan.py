"""Actuator that starts and ends nothing: decisions are written down. `millrace up` follows them
where the policy says `local` (ops/supervisor/scaling.py), `millrace scaler` where it says
`kubernetes` (workers/scaler/scaler.py)."""


class PlanActuator:
    """Remembers what it was asked for."""

    def __init__(self) -> None:
        self.asked: dict[str, int] = {}  #: replicas by pool

    def apply(self, pool: str, replicas: int) -> bool:
        """Implements `Actuator.apply`."""
        before, self.asked[pool] = self.asked.get(pool), replicas
        return before != replicas
