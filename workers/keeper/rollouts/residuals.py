"""Device time of launches over what the control's would have taken: launches of unlike sizes are
compared by that."""

from dataclasses import replace

from jobs.rollouts.records import LaunchRecord
from workers.scheduler.cost import LaunchSize
from workers.scheduler.latency import LatencyModel

_LEAST = 20  # launches of the control before its model predicts


class Residuals:
    """Latency model of the control's launches, learnt as they come."""

    def __init__(self) -> None:
        self._latency = LatencyModel()

    def with_residual(self, record: LaunchRecord) -> LaunchRecord:
        """Returns a record with its residual; one whose device time isn't known as it is."""
        if record.device_ms <= 0 or record.failed or not record.launches:
            return record
        size, seconds = LaunchSize(*record.size), record.device_ms / 1000
        known = self._latency.launches >= _LEAST
        predicted_s = self._latency.predict(size) if known else 0.0
        if record.lane == "control":
            self._latency.observe(size, seconds)
        return replace(record, residual=seconds / predicted_s) if predicted_s > 0 else record
