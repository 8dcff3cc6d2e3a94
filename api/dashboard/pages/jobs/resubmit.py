"""Page that submits the items of a job again, with other terms."""

from collections.abc import Mapping
from hashlib import sha256

import orjson
from fastapi import Response

from api.dashboard.auth import sessions
from api.dashboard.auth.viewer import Form
from api.dashboard.forms import new_job
from api.dashboard.rendering import layout, page_router
from api.http.errors import validated
from api.routes.jobs import resubmit
from api.routes.jobs.lookup import JobId, find_job
from api.schemas.jobs import ResubmitRequest
from jobs.errors import Fault, Invalid, MillraceError, NotFound
from jobs.intake.idempotency_key import Claim
from jobs.states import JOB_CLASSES, TERMINAL
from jobs.views import jobs

router = page_router.router()


@router.get("/jobs/{job_id}/resubmit")
def show_form(page: layout.SubmitterPage, job_id: JobId) -> Response:
    """Shows the terms of a job, to be changed."""
    with find_job(page.context, page.caller, job_id) as (_, row):
        job = jobs.job_object(row)
    labels = ", ".join(f"{key}:{value}" for key, value in job["labels"].items())
    sent = {
        "items": "all", "model": f"{job['model']}@{job['version']}", "name": job["name"] or "",
        "params": orjson.dumps(job["params"]).decode(), "labels": labels, "class": job["class"],
        "priority": str(job["priority"]), "once": sessions.new_id(),
    }  # fmt: skip
    return _form(page, job_id, sent)


@router.post("/jobs/{job_id}/resubmit")
async def submit_form(page: layout.UploaderPage, form: Form, job_id: JobId) -> Response:
    """Stores the new job, and leads to it."""
    try:
        order = _order(form)
        sent = sha256(orjson.dumps([job_id, *sorted(form.items())]))
        claim = Claim(page.caller.tenant, f"dashboard-{sent.hexdigest()}", sent.digest())
        stored = await resubmit.resubmit(*page.arguments, job_id, order, claim)
    except NotFound as error:
        if error.code == "not_found":  # the job, not a model
            raise
        return _form(page, job_id, form, error)
    except MillraceError as error:
        return _form(page, job_id, form, error)
    notice = f"The items of {job_id} are submitted again"
    return layout.redirect(f"{layout.PREFIX}{stored.headers['Location']}", notice)


def _order(form: Mapping[str, str]) -> ResubmitRequest:
    """Returns the terms; what was emptied is none. Raises Invalid."""
    faults: list[Fault] = []
    fields = {name: text.strip() for name, text in form.items() if text.strip()}
    terms = {"name": None, "labels": {}, "params": {}} | new_job.order_of(fields, faults)
    if faults:
        raise Invalid("; ".join(fault.message for fault in faults), faults=faults)
    return validated(ResubmitRequest, {**terms, "items": form.get("items", "all")})


def _form(
    page: layout.Page, job_id: str, sent: Mapping[str, str], error: MillraceError | None = None
) -> Response:
    with find_job(page.context, page.caller, job_id) as (_, row):
        job = jobs.job_object(row)
    models = page.context.models_of(page.caller.tenant)
    choices = sorted({name for model in models for name in (model.name, model.key)})
    return page.render(
        "resubmit.html", status=error.status if error else 200, job=job, sent=sent, error=error,
        choices=choices, classes=JOB_CLASSES, has_ended=row.state in TERMINAL,
    )  # fmt: skip
