"""Pools, their autoscalers and events as JSON objects."""

from typing import Any

import orjson

from jobs.store.scaling.policies import EventRow, PolicyRow
from jobs.views.jobs import timestamp


def scaling_object(row: PolicyRow) -> dict[str, Any]:
    """The autoscaler of a pool."""
    return {
        "policy": orjson.loads(row.policy),
        "paused": row.paused,
        "desired": row.desired,
        "reason": row.reason,
        "updated_at": timestamp(row.updated_at),
        "updated_by": row.updated_by,
    }


def event_object(row: EventRow) -> dict[str, Any]:
    """An event of a pool."""
    return {
        "at": timestamp(row.at),
        "act": row.act,
        "desired": row.desired,
        "reason": row.reason,
        "actor": row.actor,
        "figures": orjson.loads(row.figures),
    }
