"""Webhooks: what was sent for a job, sending it again, the secret that signs."""

from typing import Any

from fastapi import APIRouter, Request, Response

from api.auth import audit
from api.context import Shared
from api.dependencies import Reader, Submitter
from api.http.responses import json_response
from api.routes.jobs.lookup import JobId, find_job
from api.schemas.webhooks import Delivery, DeliveryList, Endpoint, EndpointState, SigningSecret
from jobs import ssrf
from jobs.errors import Conflict, Fault, Invalid
from jobs.settings import Settings
from jobs.ssrf import AllowList
from jobs.store.billing import spend
from jobs.store.webhooks import deliveries as store
from jobs.store.webhooks import endpoints
from jobs.usecases import webhook_secret
from jobs.usecases.webhook_messages import delivery_object

router = APIRouter(tags=["webhooks"])

_SECRET = "webhook secret"  # what the audit log calls it: each tenant has one


@router.get("/jobs/{job_id}/webhooks", response_model=DeliveryList)
def list_deliveries(shared: Shared, caller: Reader, job_id: JobId) -> Response:
    """One for each time that the job ended, the latest first."""
    with find_job(shared, caller, job_id) as (tx, job):
        rows = store.of_job(tx, job.tenant_id, job.id)
    return json_response({"data": [delivery_object(row) for row in rows]})


@router.post("/jobs/{job_id}/webhooks/redeliver", status_code=202, response_model=Delivery)
def redeliver(request: Request, shared: Shared, caller: Submitter, job_id: JobId) -> Response:
    """Sends the latest again, under the same id, with all its tries before it; a disabled endpoint
    is enabled by it."""
    with find_job(shared, caller, job_id) as (tx, job):
        row = store.redeliver(tx, job.tenant_id, job.id)
        if row is None:
            raise Conflict(f"{job_id} has no webhook, or has not ended yet")
        endpoints.close_breaker(tx, (job.tenant_id, row.url))
        audit.record(tx, request, caller, "webhook.redeliver", job_id, job.tenant_id)
    return json_response(delivery_object(row), 202)


@router.get("/webhooks/secret", response_model=SigningSecret)
def look_at_secret(request: Request, shared: Shared, caller: Submitter) -> dict[str, Any]:
    """The secret that signs your webhooks: shown once, when it was made or first asked for."""
    with shared.acting(caller.tenant) as tx:
        found = webhook_secret.show(tx, shared.settings.secret_key, caller.tenant)
        if found["secret"]:
            audit.record(tx, request, caller, "webhook_secret.show", _SECRET)
        return found


@router.post("/webhooks/secret", response_model=SigningSecret)
def rotate_secret(request: Request, shared: Shared, caller: Submitter) -> dict[str, Any]:
    """Makes a new secret and shows it, this once. The one before it goes on signing for 24 hours
    beside it."""
    with shared.acting(caller.tenant) as tx:
        audit.record(tx, request, caller, "webhook_secret.rotate", _SECRET)
        return webhook_secret.rotate(tx, shared.settings.secret_key, caller.tenant)


@router.get("/webhooks/endpoint", response_model=EndpointState)
def look_at_endpoint(shared: Shared, caller: Reader) -> Response:
    """Where you are told what is of no job, and what was sent there."""
    with shared.acting(caller.tenant) as tx:
        rows = store.of_tenant(tx, caller.tenant)
        url = spend.endpoint(tx, caller.tenant)
    return json_response({"url": url, "deliveries": [delivery_object(row) for row in rows]})


@router.put("/webhooks/endpoint", response_model=EndpointState)
def set_endpoint(request: Request, shared: Shared, caller: Submitter, asked: Endpoint) -> Response:
    """Sets it: `usage.threshold` goes there, at 80 and 100 % of the month's soft cap. One that was
    disabled is enabled by it."""
    if faults := url_faults(shared.settings, asked.url, ("body", "url")):
        raise Invalid(faults[0].message, faults=faults)
    with shared.acting(caller.tenant) as tx:
        spend.set_endpoint(tx, caller.tenant, asked.url)
        audit.record(tx, request, caller, "webhook_endpoint.put", "webhook endpoint")
        if asked.url:
            endpoints.close_breaker(tx, (caller.tenant, asked.url))
    return look_at_endpoint(shared, caller)


def url_faults(settings: Settings, url: str | None, loc: tuple[str, ...]) -> list[Fault]:
    """Why nothing can be sent there."""
    if url is None:
        return []
    if no := ssrf.refuse_url(url, AllowList.parse(settings.webhook_allow)):
        return [Fault(loc, *no)]
    if not settings.secret_key:
        why = "webhooks can't be signed here: MILLRACE_SECRET_KEY is not set"
        return [Fault(loc[:1], "not_configured", why)]
    return []
