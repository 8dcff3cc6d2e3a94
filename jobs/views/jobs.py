"""JSON of jobs and items."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any

import orjson

from jobs import ids
from jobs.explain.diagnosis import Diagnosis
from jobs.explain.timing import ItemTiming
from jobs.states import OUTCOMES, TERMINAL
from jobs.store.jobs.detail import ItemRow
from jobs.store.jobs.read import RECENT_S, JobRow


def job_object(row: JobRow) -> dict[str, Any]:
    """The job as JSON object."""
    done = {outcome: int(getattr(row, outcome)) for outcome in OUTCOMES}
    running = int(row.n_running)
    pending = row.total - running - sum(done.values())
    return {
        "id": ids.show("job", row.id),
        "name": row.name,
        "model": row.model,
        "version": row.version,
        "versioning": row.versioning,
        "state": row.state,
        "class": row.job_class,
        "priority": row.priority,
        "params": orjson.loads(row.params),
        "metadata": orjson.loads(row.metadata),
        "labels": orjson.loads(row.labels or "{}"),
        "generation": row.generation,
        "counts": {"total": row.total, "pending": pending, "running": running, **done},
        "truncated": int(row.truncated),
        "created_at": timestamp(row.created_at),
        "started_at": timestamp(row.started_at),
        "finished_at": timestamp(row.finished_at),
        "expires_at": timestamp(row.expires_at),
        "progress": _progress(row, row.total - sum(done.values())),
        "error": None if row.error is None else orjson.loads(row.error),
        "input": _input(row),
        "output": _output(row),
    }


def job_json(row: JobRow) -> bytes:
    """The job as JSON text."""
    return orjson.dumps(job_object(row))


def _input(row: JobRow) -> dict[str, Any] | None:
    """Source of the items, with the last error while it is read."""
    if not row.source:
        return None
    waits = row.state == "validating"
    source: dict[str, Any] = orjson.loads(row.source)
    return source | {"last_error": row.transfer_error if waits else None}


_NO_RESULTS = {
    "code": "no_results",
    "message": "the job ended before its items were read: there is nothing to write",
}


def _output(row: JobRow) -> dict[str, Any] | None:
    """Target of the results, and the progress of writing them."""
    if not row.target:
        return None
    target: dict[str, Any] = orjson.loads(row.target)
    written = orjson.loads(row.manifest or "null")
    ended = row.state in TERMINAL
    if ended and not row.total:
        written = {"error": _NO_RESULTS}
    failed = (written or {}).get("error")
    state = "writing" if ended else "pending"
    if written:
        state = "failed" if failed else "complete"
    return target | {
        "state": state,
        "manifest": None if failed else written,
        "error": failed,
        "last_error": row.transfer_error if state == "writing" else None,
    }


def _progress(row: JobRow, left: int) -> dict[str, Any]:
    """Rate and time left, by what ended recently; an ended job's rate is that of all that ran."""
    if row.started_at is None:
        return {"items_per_s": None, "eta_s": None}
    until = row.finished_at or row.read_at
    age_s = max((until - row.started_at).total_seconds(), 0.001)
    if row.state in TERMINAL:
        ran = int(row.succeeded) + int(row.failed)
        return {"items_per_s": round(ran / age_s, 1) if ran else None, "eta_s": None}
    rate = int(row.n_recent) / min(age_s, RECENT_S)
    eta = [round(left / rate * spread, 1) for spread in (0.8, 1.2)] if rate else None
    return {"items_per_s": round(rate, 1), "eta_s": eta}


def item_object(
    row: ItemRow, unit: str, why: Iterable[Diagnosis] = (), *, whole_launch: bool
) -> dict[str, Any]:
    """One item as JSON object: its input, its end, its launch, and why it took so long.

    whole_launch: include what tells of other tenants' items in the launch.
    """
    outcome = row.outcome
    state = outcome or ("running" if row.slice_state == "leased" else "pending")
    return {
        "seq": row.seq,
        "custom_id": row.custom_id,
        "input": orjson.loads(row.input),
        "params": orjson.loads(row.params or "{}"),
        "version": row.version,
        "state": state,
        "outcome": outcome,
        "output": orjson.loads(row.output or "null"),
        "error": orjson.loads(row.error or "null"),
        "usage": usage_of(unit, row.units, row.truncated) if outcome else None,
        "attempts": row.attempts or 0,
        "deliveries": row.epoch,
        "timing": ItemTiming.from_row(row).as_json(),
        "launch": _launch(row, whole_launch),
        "why": [one.as_json() for one in why],
    }


def usage_of(unit: str, units: int | None, truncated: int | None) -> dict[str, int | None]:
    """Returns the usage of an item: its size, and the tokens of its text that were cut away."""
    return {unit: units, "truncated": truncated} if truncated else {unit: units}


def _launch(row: ItemRow, whole: bool) -> dict[str, Any] | None:
    if row.started_at is None:
        return None
    own: dict[str, Any] = {
        "worker": row.incarnation,
        "engine_ms": round(row.engine_ms or 0.0, 3),
        "started_at": timestamp(row.started_at),
    }
    if not whole:  # its number, its size and why it left tell of others
        return own
    return own | {
        "id": row.launch_id,
        "items": row.items,
        "calls": row.calls,
        "reason": row.reason,
        "bucket": row.bucket,
        "units": row.launch_units,
        "padded_units": row.padded_units,
        "predicted_ms": round(row.predicted_ms or 0.0, 3),
    }


def timestamp(at: datetime | None) -> str | None:
    """Formats a time by RFC 3339, in UTC, to the microsecond."""
    return None if at is None else at.isoformat().replace("+00:00", "Z")
