"""Actuator that runs a program of the operator's: `PROGRAM POOL REPLICAS`."""

import shlex
import subprocess

from jobs import clock
from workers.keeper.scaling.actuators.protocol import ActuatorError

AGAIN_S = 60.0  # after which it is told the same number once more: what it started may have ended
_WITHIN_S = 30.0
_SHOWN = 300  # characters of what it wrote


class CommandActuator:
    """Runs a program that sets the number of workers of a pool. command: as in a shell, but run by
    none; empty: there is none."""

    def __init__(self, command: str, within_s: float = _WITHIN_S) -> None:
        self._argv, self._within_s = shlex.split(command), within_s
        self._done: dict[str, tuple[int, float]] = {}  # by pool: replicas, and when it was told

    def apply(self, pool: str, replicas: int) -> bool:
        """Implements `Actuator.apply`."""
        if not self._argv:
            raise ActuatorError(
                "the policy says `command`, but this keeper has none: set MILLRACE_SCALE_COMMAND"
            )
        before, told_s = self._done.get(pool, (None, 0.0))
        if before == replicas and clock.monotonic() - told_s < AGAIN_S:
            return False
        self._run(pool, replicas)
        self._done[pool] = replicas, clock.monotonic()
        return before != replicas

    def _run(self, pool: str, replicas: int) -> None:
        argv = [*self._argv, pool, str(replicas)]
        try:
            done = subprocess.run(
                argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=self._within_s
            )
        except subprocess.TimeoutExpired:
            raise ActuatorError(
                f"{shlex.join(argv)} did not end within {self._within_s:g} s, and was killed"
            ) from None
        except OSError as error:
            raise ActuatorError(f"{shlex.join(argv)} can't be run: {error.strerror}") from None
        if done.returncode:
            said = (done.stderr or done.stdout).decode(errors="replace").strip()[-_SHOWN:]
            raise ActuatorError(f"{shlex.join(argv)} ended with {done.returncode}: {said}")
