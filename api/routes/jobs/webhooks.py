"""Webhooks: deliveries of a job, redelivery, the signing secret, the tenant's endpoint."""

from fastapi import APIRouter, Request

from api.auth import audit
from api.context import ContextDep
from api.dependencies import Reader, Submitter
from api.routes.jobs.lookup import JobId, find_job
from api.schemas.webhooks import Delivery, DeliveryList, Endpoint, EndpointState, SigningSecret
from jobs.errors import Conflict, Fault, Invalid
from jobs.security import ssrf
from jobs.security.ssrf import AllowList
from jobs.settings import Settings
from jobs.store.billing import spend
from jobs.store.webhooks import deliveries as store
from jobs.store.webhooks import endpoints
from jobs.usecases import webhook_secret
from jobs.usecases.webhook_messages import delivery_object

router = APIRouter(tags=["webhooks"])

_SECRET = "webhook secret"  # target in the audit log; each tenant has one


@router.get("/jobs/{job_id}/webhooks")
def list_deliveries(context: ContextDep, caller: Reader, job_id: JobId) -> DeliveryList:
    """Lists deliveries, one for each end of the job, the latest first."""
    with find_job(context, caller, job_id) as (tx, job):
        rows = store.of_job(tx, job.tenant_id, job.id)
    return DeliveryList.model_validate({"data": map(delivery_object, rows)})


@router.post("/jobs/{job_id}/webhooks/redeliver", status_code=202)
def redeliver(request: Request, context: ContextDep, caller: Submitter, job_id: JobId) -> Delivery:
    """Sends the latest delivery again, under the same id, with a full set of tries; enables a
    disabled endpoint."""
    with find_job(context, caller, job_id) as (tx, job):
        row = store.redeliver(tx, job.tenant_id, job.id)
        if row is None:
            raise Conflict(f"{job_id} has no webhook, or has not ended yet")
        endpoints.close_breaker(tx, (job.tenant_id, row.url))
        audit.record(tx, request, caller, "webhook.redeliver", job_id, job.tenant_id)
    return Delivery.model_validate(delivery_object(row))


@router.get("/webhooks/secret")
def look_at_secret(request: Request, context: ContextDep, caller: Submitter) -> SigningSecret:
    """Returns the secret that signs your webhooks: shown once, when it was made or first asked
    for."""
    with context.acting(caller.tenant) as tx:
        secret = webhook_secret.show(tx, context.settings.secret_key, caller.tenant)
        if secret["secret"]:
            audit.record(tx, request, caller, "webhook_secret.show", _SECRET)
        return SigningSecret.model_validate(secret)


@router.post("/webhooks/secret")
def rotate_secret(request: Request, context: ContextDep, caller: Submitter) -> SigningSecret:
    """Makes a new secret and shows it once. The old one also signs for 24 hours."""
    with context.acting(caller.tenant) as tx:
        audit.record(tx, request, caller, "webhook_secret.rotate", _SECRET)
        secret = webhook_secret.rotate(tx, context.settings.secret_key, caller.tenant)
    return SigningSecret.model_validate(secret)


@router.get("/webhooks/endpoint")
def look_at_endpoint(context: ContextDep, caller: Reader) -> EndpointState:
    """Returns the URL that gets events of no job, and its deliveries."""
    with context.acting(caller.tenant) as tx:
        rows = store.of_tenant(tx, caller.tenant)
        url = spend.endpoint(tx, caller.tenant)
    return EndpointState.model_validate({"url": url, "deliveries": map(delivery_object, rows)})


@router.put("/webhooks/endpoint")
def set_endpoint(
    request: Request, context: ContextDep, caller: Submitter, body: Endpoint
) -> EndpointState:
    """Sets that URL: it gets `usage.threshold` at 80 and 100 % of the month's soft cap. Enables a
    disabled endpoint."""
    if faults := url_faults(context.settings, body.url, ("body", "url")):
        raise Invalid(faults[0].message, faults=faults)
    with context.acting(caller.tenant) as tx:
        spend.set_endpoint(tx, caller.tenant, body.url)
        audit.record(tx, request, caller, "webhook_endpoint.put", "webhook endpoint")
        if body.url:
            endpoints.close_breaker(tx, (caller.tenant, body.url))
    return look_at_endpoint(context, caller)


def url_faults(settings: Settings, url: str | None, loc: tuple[str, ...]) -> list[Fault]:
    """Returns why a webhook can't be sent to this URL."""
    if url is None:
        return []
    if problem := ssrf.url_problem(url, AllowList.parse(settings.webhook_allow)):
        return [Fault(loc, *problem)]
    if not settings.secret_key:
        message = "webhooks can't be signed here: MILLRACE_SECRET_KEY is not set"
        return [Fault(loc[:1], "not_configured", message)]
    return []
