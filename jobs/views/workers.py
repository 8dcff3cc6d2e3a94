"""JSON of workers."""

from collections.abc import Iterable
from typing import Any

from jobs.store.monitoring.workers import HeldModel, WorkerRow
from jobs.views import jobs


def worker_object(row: WorkerRow, held: Iterable[HeldModel]) -> dict[str, Any]:
    """One worker and its models as JSON object."""
    return {
        "id": row.incarnation,
        "name": row.name,
        "pool": row.pool,
        "device": row.device,
        "state": row.state,
        "drain_asked": row.drain_asked_at is not None,
        "died": row.died,
        "models": [
            {
                "model": one.model,
                "state": one.state,
                "memory_mb": round(one.memory_mb, 1) or None,
                "load_ms": round(one.load_ms, 1) or None,
                "error": one.error or None,
            }
            for one in held
        ],
        "started_at": jobs.timestamp(row.started_at),
        "heartbeat_at": jobs.timestamp(row.heartbeat_at),
        "ended_at": jobs.timestamp(row.ended_at),
    }
