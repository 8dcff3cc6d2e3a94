"""Page that tries a model: real calls as the viewer, through the gateway, and their code."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import orjson
from fastapi import Path, Query, Response

from api.dashboard.auth import viewer
from api.dashboard.forms import call_code, trial
from api.dashboard.forms.examples import IMAGE, example_input, example_tensor
from api.dashboard.rendering import layout, page_router
from api.http import bodies, errors, multipart
from api.http.multipart import Form
from api.http.request_id import request_id
from api.http.responses import json_response
from api.routes import calls
from api.schemas.common import NO_NUL
from api.services.intake.upload_meter import JOB_SHARE
from jobs.errors import MillraceError
from jobs.models.inputs import tensor_inputs
from jobs.models.model import Model

router = page_router.router()
PATH = f"{layout.PREFIX}/try"

_FIELD_BYTES = 1 << 20
_Key = Annotated[str, Path(max_length=200, pattern=NO_NUL)]


@router.get("/models/{key}/try")
def show_form(
    page: layout.CallerPage, key: _Key, write: Annotated[Literal["", "json"], Query()] = ""
) -> Response:
    """Shows the form of a model; `write=json`: its input as JSON."""
    model = _model(page, key)
    return _form(page, model, key, {"kind": write})


@router.post("/try")
async def make_call(page: layout.CallerPage) -> Response:
    """Makes the call of a form, or shows its code.

    A script asks for JSON, and gets the response of POST /infer as it is: events, where it is
    streamed. Without scripts the answer is the page again.
    """
    viewer.refuse_other_sites(page.request)
    meter = page.context.upload_meter.begin(page.caller, JOB_SHARE)
    most = page.context.models_of(page.caller.tenant).max_line_bytes
    async with multipart.read(page.request, most, meter, _FIELD_BYTES) as form:
        viewer.check_token(form.fields, page.viewer, page.context)
        if bodies.header(page.request, b"accept") == b"application/json":
            return await _to_script(page, form)
        return await _to_browser(page, form)


async def _to_script(page: layout.Page, form: Form) -> Response:
    try:
        key = form.fields.get("model", "")
        body = trial.body_of(_model(page, key), key, form)
        if form.fields.get("show") == "code":
            return json_response(_code(page, body, form))
        return await _call(page, body)
    except MillraceError as error:
        return errors.error_response(error, request_id(page.request.scope), PATH)


async def _to_browser(page: layout.Page, form: Form) -> Response:
    key = form.fields.get("model", "")
    model = _model(page, key)
    form.fields.pop("stream", None)  # of a script alone
    shown: dict[str, Any] = {"file": form.filename or ""}
    sent = dict(form.fields)
    try:
        body = trial.body_of(model, key, form)
        shown["code"] = _code(page, body, form)
        if form.fields.get("show") != "code":
            shown["call"] = orjson.loads(bytes((await _call(page, body)).body))
            sent |= _conversation(sent, body, shown["call"]["output"])
    except MillraceError as error:
        shown["error"] = error
    return _form(page, model, key, sent, **shown)


async def _call(page: layout.Page, body: Mapping[str, Any]) -> Response:
    """Makes a call as POST /infer does, with the viewer's rights and limits."""
    deadline = {} if body.get("stream") else {"timeout_ms": trial.TIMEOUT_MS}
    raw = orjson.dumps({**body, **deadline})
    request, context, caller = page.arguments
    if len(raw) > bodies.LIGHT_BYTES:
        context.call_bodies.hold(request.scope, caller.tenant, len(raw))
    return await calls.answer_call(request, context, caller, raw, None, key_required=False)


def _model(page: layout.Page, key: str) -> Model:
    tenant = page.caller.tenant
    return page.context.models_of(tenant).resolve(key, tenant)


def _code(page: layout.Page, body: Mapping[str, Any], form: Form) -> dict[str, str]:
    """Returns a call as code, an image in it as a file."""
    shown = {**body, "input": IMAGE} if form.filename else body
    url = page.context.settings.url
    return {"curl": call_code.curl(url, shown), "python": call_code.python(url, shown)}


def _conversation(sent: Mapping[str, str], body: Mapping[str, Any], output: Any) -> dict[str, str]:
    """Returns the fields of a form that goes on with a conversation; {} for other inputs."""
    if sent.get("kind") != "chat":
        return {}
    reply = {"role": "assistant", "content": trial.text_of(output)}
    history = [*trial.messages_of(sent), body["input"]["messages"][-1], reply]
    return {"history": orjson.dumps(history).decode(), "message": ""}


def _form(
    page: layout.Page, model: Model, key: str, sent: Mapping[str, str], **shown: Any
) -> Response:
    """Renders the page. shown: the call, its code, or its error."""
    kinds = trial.kinds_of(model)
    kind = next((one for one in kinds if one == sent.get("kind")), kinds[0])
    is_tensors = model.effective_task == "tensors"
    specs = tensor_inputs.signature(model).inputs.values() if is_tensors else ()
    error: MillraceError | None = shown.get("error")
    return page.render(
        "playground.html", status=error.status if error else 200, key=key, model=model,
        kind=kind, kinds=kinds, sent=sent, error=error, call=shown.get("call"),
        code=shown.get("code"), file=shown.get("file", ""),
        example=orjson.dumps(example_input(model), option=orjson.OPT_INDENT_2).decode(),
        tensors=[(spec, example_tensor(spec)) for spec in specs],
        history=_shown_history(sent), text_of=trial.text_of, pretty=_pretty,
        most_shown=_MOST_SHOWN,
    )  # fmt: skip


_MOST_SHOWN = 20_000  # characters of an output


def _pretty(value: Any) -> str:
    return orjson.dumps(value, option=orjson.OPT_INDENT_2).decode()[:_MOST_SHOWN]


def _shown_history(sent: Mapping[str, str]) -> list[Any]:
    try:
        return [one for one in trial.messages_of(sent) if isinstance(one, dict)]
    except MillraceError:
        return []
