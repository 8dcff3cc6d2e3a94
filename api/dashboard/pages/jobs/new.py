"""Page that submits a job: items pasted or in a file, faults beside what was sent."""

from collections.abc import Mapping
from typing import Annotated

import orjson
from fastapi import Query, Response

from api.dashboard.auth import sessions, viewer
from api.dashboard.forms import new_job
from api.dashboard.forms.examples import example_input
from api.dashboard.rendering import layout, page_router
from api.http import multipart
from api.http.multipart import Form
from api.routes.jobs import submit
from api.schemas.common import NO_NUL
from api.services.intake.upload_meter import JOB_SHARE
from jobs.errors import Forbidden, MillraceError
from jobs.intake.formats import FORMATS
from jobs.states import JOB_CLASSES

router = page_router.router()
PATH = f"{layout.PREFIX}/jobs/new"

_MIB = 1 << 20
_FIELD_BYTES = 1 << 20  # of a form: its pasted items, mostly


@router.get("/jobs/new")
def show_form(
    page: layout.SubmitterPage,
    model: Annotated[str, Query(max_length=200, pattern=NO_NUL)] = "",
) -> Response:
    """Shows the form. model: chosen beforehand."""
    return _form(page, {"model": model, "once": sessions.new_id()})


@router.post("/jobs/new")
async def submit_form(page: layout.UploaderPage) -> Response:
    """Stores a job, and leads to it; shows the form again with what is wrong with it."""
    viewer.refuse_other_sites(page.request)
    context, caller = page.context, page.caller
    meter = context.upload_meter.begin(caller, JOB_SHARE)
    most = context.settings.max_ndjson_mb * _MIB
    async with multipart.read(page.request, most, meter, _FIELD_BYTES) as form:
        viewer.check_token(form.fields, page.viewer, context)
        try:
            return await _store(page, form)
        except Forbidden:
            raise
        except MillraceError as error:
            return _form(page, form.fields, error, form.filename or "")


async def _store(page: layout.Page, form: Form) -> Response:
    items = new_job.items_of(form)
    claim = new_job.claim_of(form, items, page.caller.tenant)
    fields = new_job.fields_of(form)
    stored = await submit.take(page.context, items, new_job.store_form, page.caller, fields, claim)
    return layout.redirect(f"{layout.PREFIX}{stored.headers['Location']}", "The job is submitted")


def _form(
    page: layout.Page, sent: Mapping[str, str], error: MillraceError | None = None, file: str = ""
) -> Response:
    """Renders the form with what was sent. file: name of the one that must be chosen again."""
    models = page.context.models_of(page.caller.tenant)
    choices = sorted({name for model in models for name in (model.name, model.key)})
    examples = {model.name: orjson.dumps(example_input(model)).decode() for model in models}
    return page.render(
        "new_job.html", status=error.status if error else 200, sent=sent, error=error, file=file,
        choices=choices, examples=examples, formats=FORMATS, classes=JOB_CLASSES,
    )  # fmt: skip
