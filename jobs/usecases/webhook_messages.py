"""Webhooks by the Standard Webhooks specification: the message and its signatures.

https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md
"""

import base64
import hashlib
import hmac
import secrets
from collections.abc import Sequence
from dataclasses import fields
from datetime import datetime
from typing import Any
from uuid import UUID

import orjson

from jobs import ids
from jobs.states import OUTCOMES
from jobs.store.jobs.read import JobRow
from jobs.store.webhooks.deliveries import DeliveryRow
from jobs.views import jobs

ID_PREFIX = "msg"
_SECRET_PREFIX = "whsec_"
_SECRET_BYTES = 32
_TIMES = ("created_at", "started_at", "finished_at", "expires_at")


def new_secret() -> str:
    """Makes a secret, `whsec_…`: 32 random bytes from the operating system."""
    return _SECRET_PREFIX + base64.b64encode(secrets.token_bytes(_SECRET_BYTES)).decode()


def signature(secret: str, id: str, timestamp: int, body: bytes) -> str:
    """Signs a message, `v1,…`: HMAC-SHA256 over id, timestamp (seconds since 1970) and body."""
    key = base64.b64decode(secret.removeprefix(_SECRET_PREFIX))
    signed = f"{id}.{timestamp}.".encode() + body
    return "v1," + base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()


def headers(id: str, timestamp: int, body: bytes, keys: Sequence[str]) -> dict[str, str]:
    """Returns the headers of one try; id is the same over all tries; one signature a key."""
    return {
        "content-type": "application/json",
        "user-agent": "millrace",
        "webhook-id": id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": " ".join(signature(key, id, timestamp, body) for key in keys),
    }


def body(type: str, about: str, id: UUID) -> bytes:
    """Returns the message as JSON text.

    type: `job.completed`, …, with `about` the job's row as it ended; `batch.completed`, …, worded
    as OpenAI does; or another one, with `about` its data and time (`at`). id: the delivery's.
    """
    data = orjson.loads(about)
    if type.startswith("batch."):
        ended_at = datetime.fromisoformat(data["finished_at"])
        return orjson.dumps(
            {
                "id": ids.show("evt", id),
                "object": "event",
                "created_at": int(ended_at.timestamp()),
                "type": type,
                "data": {"id": ids.show("batch", UUID(data["id"]))},
            }
        )
    if not type.startswith("job."):
        return orjson.dumps({"type": type, "timestamp": data["at"], "data": data})
    ended = jobs.job_object(_row(data))
    return orjson.dumps({"type": type, "timestamp": ended["finished_at"], "data": ended})


def _row(stored: dict[str, Any]) -> JobRow:
    """Rebuilds the job from its row as JSON; an earlier version may have written fewer columns."""
    values: dict[str, Any] = {field.name: stored.get(field.name) for field in fields(JobRow)}
    values |= {name: stored[name] and datetime.fromisoformat(stored[name]) for name in _TIMES}
    values |= {outcome: stored[f"n_{outcome}"] for outcome in OUTCOMES}
    values["truncated"] = stored.get("n_truncated", 0)
    values |= {"id": UUID(stored["id"]), "job_class": stored["class"], "n_running": 0}
    values["versioning"] = stored.get("versioning", "pinned")
    return JobRow(**values)


def delivery_object(row: DeliveryRow) -> dict[str, Any]:
    """A delivery as clients see it."""
    return {
        "id": ids.show(ID_PREFIX, row.id),
        "type": row.type,
        "generation": row.generation,
        "url": row.url,
        "state": row.state,
        "tries": row.tries,
        "created_at": jobs.timestamp(row.created_at),
        "delivered_at": jobs.timestamp(row.delivered_at),
        "next_try_at": jobs.timestamp(row.due_at) if row.state == "pending" else None,
        "last_status": row.last_status,
        "last_error": row.last_error,
    }
