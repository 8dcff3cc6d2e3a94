"""Timing of one item, by stage, from its rows."""

from dataclasses import asdict, dataclass
from datetime import datetime

from jobs.store.jobs.detail import ItemRow


@dataclass(frozen=True, slots=True)
class ItemTiming:
    """Timing of an item, by stage; None: not reached, or unknown."""

    #: from the queueing of its job until its slice was claimed, its job ended, or now; if the slice
    #: was claimed more than once: until the item entered the lane that it was launched from
    waiting_ms: float | None = None
    preprocess_ms: float | None = None  #: until it entered its lane
    queue_ms: float | None = None  #: until its launch was closed
    batch_ms: float | None = None  #: until the device started
    engine_ms: float | None = None  #: device time of its launch
    record_ms: float | None = None  #: until its slice was recorded
    total_ms: float | None = None
    wait_ms: float | None = None  #: queue_ms and batch_ms

    @classmethod
    def from_row(cls, row: ItemRow) -> "ItemTiming":
        """Computes the timing from a row of `jobs.store.jobs.read.item`."""
        queued_at: datetime = row.queued_at or row.created_at
        claimed_at, started_at = row.claimed_at, row.started_at
        wait_ms, batch_ms, engine_ms = row.wait_ms, row.batch_ms, row.engine_ms
        if started_at is None or wait_ms is None:
            until = claimed_at or row.slice_finished_at or row.read_at
            return cls(waiting_ms=_ms(queued_at, until))
        arrived_ms = max(0.0, _exact(queued_at, started_at) - wait_ms)
        claimed_ms = _ms(queued_at, claimed_at)
        once = claimed_ms is not None and claimed_ms <= arrived_ms
        done_ms = _ms(queued_at, row.slice_finished_at)
        launched_ms = arrived_ms + wait_ms + (engine_ms or 0.0)
        return cls(
            waiting_ms=claimed_ms if once else round(arrived_ms, 3),
            preprocess_ms=round(arrived_ms - claimed_ms, 3)
            if once and claimed_ms is not None
            else None,
            queue_ms=round(max(0.0, wait_ms - (batch_ms or 0.0)), 3),
            batch_ms=batch_ms and round(batch_ms, 3),
            engine_ms=engine_ms,
            record_ms=None if done_ms is None else round(max(0.0, done_ms - launched_ms), 3),
            total_ms=None if done_ms is None else round(max(done_ms, launched_ms), 3),
            wait_ms=wait_ms,
        )

    def as_json(self) -> dict[str, float | None]:
        """Returns all stages by name."""
        return asdict(self)


def _ms(since: datetime, until: datetime | None) -> float | None:
    return None if until is None else round(max(0.0, _exact(since, until)), 3)


def _exact(since: datetime, until: datetime) -> float:
    return (until - since).total_seconds() * 1000
