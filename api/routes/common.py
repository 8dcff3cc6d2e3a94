"""What the routes of jobs share."""

from typing import Annotated, Any

import orjson
from fastapi import Path, Response
from sqlalchemy import RowMapping

from api import bodies
from jobs import ids
from jobs.errors import NotFound
from jobs.store import reading
from jobs.store.db import Tx

JOB_ID = "^job_[0-7][0-9a-hjkmnp-tv-z]{25}$"
JobId = Annotated[str, Path(description="job_…", pattern=JOB_ID)]


def find_job(tx: Tx, tenant: str, job_id: str) -> RowMapping:
    id = ids.parse("job", job_id)
    row = reading.get(tx, tenant, id) if id else None
    if row is None:
        raise NotFound(f"there is no job {job_id}")
    return row


def json_response(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(orjson.dumps(value), status, headers, media_type=bodies.JSON)
