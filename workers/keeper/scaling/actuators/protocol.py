"""Protocol of actuators; one suite of tests runs over all of them."""

from typing import Protocol


class ActuatorError(Exception):
    """Says why a pool could not be brought to a number of replicas, and how to mend it."""


class Actuator(Protocol):
    """Brings a pool to a number of replicas."""

    def apply(self, pool: str, replicas: int) -> bool:
        """Asks for so many replicas; returns True if that is another number than before.

        Returns without waiting for them to be ready. Asked again and again for the same number it
        does nothing more than is needed to keep it. Those that go are drained: they finish what
        they run, and give the rest back. Raises ActuatorError.
        """
        ...
