"""Failures of one worker's device in a row: how long its next start waits, and when it is
quarantined.

A failure in a launch that may be the cause counts little: one item may make launch after launch
fail until it stands alone."""

from math import inf

from workers.device.monitoring.watchdog import (
    DEVICE_CRASH_EXIT_CODE,
    FIRST_LAUNCH_EXIT_CODE,
    SICK_EXIT_CODE,
)

#: Strikes of each failure, by exit code.
_STRIKES = {SICK_EXIT_CODE: 8, FIRST_LAUNCH_EXIT_CODE: 2, DEVICE_CRASH_EXIT_CODE: 1}
_MOST_STRIKES = 24  # in a row; one item of a slice of 1,000 causes some 20 at most
_FEW_STRIKES, _FIRST_PAUSE_S, _PAUSE_S = 8, 1.0, 4.0
_HEALTHY_S = 30.0  # a worker that lived so long and ended otherwise has a healthy device
#: The same, where it ended by its device: after other launches had succeeded.
_HEALTHY_AFTER_FAILURE_S = dict.fromkeys(_STRIKES, inf) | {DEVICE_CRASH_EXIT_CODE: 300.0}


class DeviceFailures:
    """Strikes against the device of one worker, over its incarnations."""

    def __init__(self) -> None:
        self._strikes = 0

    def count(self, code: int, lived_s: float) -> None:
        """Counts the end of a worker with this exit code, after so many seconds."""
        if lived_s >= _HEALTHY_AFTER_FAILURE_S.get(code, _HEALTHY_S):
            self._strikes = 0
        self._strikes += _STRIKES.get(code, 0)

    def forget(self) -> None:
        """Begins anew, as an operator asked."""
        self._strikes = 0

    @property
    def too_many(self) -> bool:
        """True once no other worker is to be started on the device."""
        return self._strikes >= _MOST_STRIKES

    def pause_s(self) -> float:
        """Returns the seconds until the next start; inf: none is."""
        if self.too_many:
            return inf
        return _FIRST_PAUSE_S if self._strikes <= _FEW_STRIKES else _PAUSE_S


def device_failed(code: int) -> bool:
    """Returns True for the exit codes of a worker whose device failed."""
    return code in _STRIKES
