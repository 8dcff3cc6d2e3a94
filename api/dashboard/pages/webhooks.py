"""Page of webhooks: endpoints, deliveries, and the signing secret."""

from typing import Annotated, Any, Literal
from urllib.parse import urlencode

from fastapi import Path, Query, Response

from api.dashboard.auth.viewer import Form
from api.dashboard.data.adaptive_cache import AdaptiveCache
from api.dashboard.data.job_filter import tenant_scope
from api.dashboard.data.time_range import Ranged
from api.dashboard.rendering import layout, page_router
from api.http.errors import validated
from api.routes.jobs import webhooks
from api.routes.jobs.lookup import TENANT_OR_ALL, JobId
from api.schemas.common import NO_NUL
from api.schemas.webhooks import Endpoint
from jobs import ids
from jobs.store.billing import spend
from jobs.store.webhooks import deliveries as store
from jobs.store.webhooks import secrets as webhook_secrets
from jobs.store.webhooks.deliveries import DeliveryRow
from jobs.usecases.webhook_messages import ID_PREFIX

router = page_router.router()
_ROWS, _ENDPOINTS = 50, 20
_PATH = f"{layout.PREFIX}/webhooks"
STATES = ("pending", "delivered", "failed", "disabled")
_endpoints: AdaptiveCache[Any] = AdaptiveCache()


@router.get("/webhooks")
def list_deliveries(
    page: layout.ReaderPage,
    range: Ranged,
    state: Annotated[str, Query(pattern=rf"^({'|'.join(STATES)})?$")] = "",
    url: Annotated[str, Query(max_length=2000, pattern=NO_NUL)] = "",
    tenant: Annotated[str, Query(pattern=rf"^$|{TENANT_OR_ALL}")] = "",
    after: Annotated[str, Query(pattern=rf"^$|{ids.pattern(ID_PREFIX)}")] = "",
) -> Response:  # fmt: skip
    """Lists endpoints and deliveries."""
    who = tenant_scope(page.caller, tenant)
    last = ids.parse(ID_PREFIX, after)
    with page.context.acting(who) as tx:
        rows = store.page(
            tx, who, state=state or None, url=url or None, since=range.start, until=range.end,
            after=last, limit=_ROWS + 1,
        )  # fmt: skip
        endpoints = _endpoints.get(who, lambda: store.by_endpoint(tx, who, _ENDPOINTS))
    with page.context.acting(page.caller.tenant) as tx:
        own_url = spend.endpoint(tx, page.caller.tenant)
        secrets = webhook_secrets.active(tx, page.caller.tenant)
    filters = {"state": state, "url": url, "tenant": tenant}
    given = {name: value for name, value in filters.items() if value}
    return page.render(
        "webhooks.html", states=STATES, state=state, url=url, tenant=tenant, endpoints=endpoints,
        deliveries=[(row, _job(row)) for row in rows[:_ROWS]],
        range=range, at_any_time=urlencode(given), query=urlencode(given | dict(range.pairs)),
        after=after,
        own_url=own_url or "", secrets=secrets,
        next=ids.show(ID_PREFIX, rows[_ROWS - 1].id) if len(rows) > _ROWS else "",
    )  # fmt: skip


def _job(row: DeliveryRow) -> str:
    """Returns the id of the delivery's job, or ""."""
    return ids.show("job", row.job_id) if row.job_id else ""


@router.post("/webhooks/{job_id}/redeliver")
def redeliver(page: layout.SubmitterPage, form: Form, job_id: JobId) -> Response:
    """Sends the latest delivery of a job again."""
    sent = webhooks.redeliver(*page.arguments, job_id)
    return layout.redirect(_PATH, f"{sent.type} of {job_id} is being sent again")


@router.post("/webhooks/secret/{act}")
def secret(
    page: layout.SubmitterPage,
    form: Form,
    act: Annotated[Literal["show", "rotate"], Path()],
) -> Response:
    """Shows the signing secret if it has never been shown, or rotates it."""
    action = webhooks.rotate_secret if act == "rotate" else webhooks.look_at_secret
    return page.render("secret.html", secret=action(*page.arguments))


@router.post("/webhooks/endpoint")
def set_endpoint(page: layout.SubmitterPage, form: Form) -> Response:
    """Sets the tenant's default endpoint."""
    endpoint = validated(Endpoint, {"url": form.get("url", "").strip() or None})
    webhooks.set_endpoint(*page.arguments, endpoint)
    return layout.redirect(
        _PATH, "Your endpoint has been set" if endpoint.url else "Your endpoint has been removed"
    )
