"""Webhooks: what was sent for a job, sending it again, the secret that signs."""

from typing import Any

from fastapi import APIRouter, Response

from api.auth import Reader, Submitter
from api.context import Shared
from api.routes.common import JobId, job_of, json_response
from api.schemas import Delivery, DeliveryList, SigningSecret
from jobs import signing
from jobs.errors import Conflict
from jobs.store import endpoints
from jobs.store import webhooks as store
from jobs.webhooks import delivery_object

router = APIRouter(tags=["webhooks"])


@router.get("/jobs/{job_id}/webhooks", response_model=DeliveryList)
def list_deliveries(shared: Shared, caller: Reader, job_id: JobId) -> Response:
    """One for each time that the job ended, the latest first."""
    with job_of(shared, caller, job_id) as (tx, job):
        rows = store.of_job(tx, job["tenant_id"], job["id"])
    return json_response({"data": [delivery_object(row) for row in rows]})


@router.post("/jobs/{job_id}/webhooks/redeliver", status_code=202, response_model=Delivery)
def redeliver(shared: Shared, caller: Submitter, job_id: JobId) -> Response:
    """Sends the latest again, under the same id, with all its tries before it; a disabled endpoint
    is enabled by it."""
    with job_of(shared, caller, job_id) as (tx, job):
        row = store.send_again(tx, job["tenant_id"], job["id"])
        if row is None:
            raise Conflict(f"{job_id} has no webhook, or has not ended yet")
        endpoints.forgive(tx, (job["tenant_id"], row["url"]))
    return json_response(delivery_object(row), 202)


@router.get("/webhooks/secret", response_model=SigningSecret)
def look_at_secret(shared: Shared, caller: Submitter) -> dict[str, Any]:
    """The secret that signs your webhooks: shown once, when it was made or first asked for."""
    with shared.acting(caller.tenant) as tx:
        return signing.look(tx, shared.settings.secret_key, caller.tenant)


@router.post("/webhooks/secret", response_model=SigningSecret)
def rotate_secret(shared: Shared, caller: Submitter) -> dict[str, Any]:
    """Makes a new secret and shows it, this once. The one before it goes on signing for 24 hours
    beside it."""
    with shared.acting(caller.tenant) as tx:
        return signing.rotate(tx, shared.settings.secret_key, caller.tenant)
