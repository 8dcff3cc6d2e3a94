"""Where the time of one item went, told from its rows."""

from dataclasses import asdict, dataclass
from datetime import datetime

from jobs.store.jobs.detail import ItemRow


@dataclass(frozen=True, slots=True)
class ItemTiming:
    """In milliseconds; None: it hasn't come to that, or nobody knows.

    waiting_ms: from when its job was queued until a worker claimed its slice, or until its job
    ended, or so far; preprocess_ms: until
    it was in its lane; queue_ms: until its launch was closed; batch_ms: until the device had it;
    engine_ms: its launch; record_ms: until all of its slice was done and recorded; total_ms: all of
    it. wait_ms: in the lane and on the way to the device. Where a slice was claimed more than once,
    waiting_ms goes on until the item was in the lane that it left for its launch.
    """

    waiting_ms: float | None = None
    preprocess_ms: float | None = None
    queue_ms: float | None = None
    batch_ms: float | None = None
    engine_ms: float | None = None
    record_ms: float | None = None
    total_ms: float | None = None
    wait_ms: float | None = None

    @classmethod
    def of(cls, row: ItemRow) -> "ItemTiming":
        """Computes them from the times of an item."""
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
        return asdict(self)


def _ms(since: datetime, until: datetime | None) -> float | None:
    return None if until is None else round(max(0.0, _exact(since, until)), 3)


def _exact(since: datetime, until: datetime) -> float:
    return (until - since).total_seconds() * 1000
