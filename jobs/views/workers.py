"""Workers as clients see them."""

from collections.abc import Iterable
from typing import Any

from sqlalchemy import RowMapping

from jobs.views import jobs


def worker_object(row: RowMapping, held: Iterable[RowMapping]) -> dict[str, Any]:
    """One, from the rows of `jobs.store.monitoring.workers`."""
    return {
        "id": row["incarnation"],
        "name": row["name"],
        "pool": row["pool"],
        "device": row["device"],
        "state": row["state"],
        "drain_asked": row["drain_asked_at"] is not None,
        "died": row["died"],
        "models": [
            {
                "model": one["model"],
                "state": one["state"],
                "memory_mb": round(one["memory_mb"], 1) or None,
                "load_ms": round(one["load_ms"], 1) or None,
                "error": one["error"] or None,
            }
            for one in held
        ],
        **{name: jobs.timestamp(row[name]) for name in ("started_at", "heartbeat_at", "ended_at")},
    }
