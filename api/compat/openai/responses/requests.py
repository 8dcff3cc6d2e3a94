"""Requests for responses, with the fields of their calls."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from api.compat.generation.preparation import GenerationBody, read_body, refused, user_of
from jobs.dialects.responses.items import Item
from jobs.dialects.responses.requests import Before, read_request
from jobs.intake import validation
from jobs.models.inputs.fields import FieldError, Fields
from jobs.models.inputs.request_fields import table

_OWN = table.names("responses", "call") - {"stream_options"}


@dataclass(frozen=True, slots=True)
class ResponseBody(GenerationBody):
    """Body of a request for a response, read but not checked against its model."""

    items: Sequence[Item] = ()  #: of the request's input
    shown: Mapping[str, Any] = field(default_factory=dict)  #: what the response repeats
    previous_response_id: str | None = None  #: response whose conversation it goes on with
    store: bool = True  #: it can be retrieved later
    background: bool = False  #: a job runs it
    conversation_id: str | None = None  #: conversation that it goes on with, and is appended to


def read_response(value: Any, before: Before) -> ResponseBody:
    """Reads a body. Raises Invalid."""
    if not isinstance(value, dict):
        raise refused("body", "type", "the body must be an object")
    validation.refuse_surrogates(value)
    try:
        return _read(value, before)
    except FieldError as error:
        raise refused(error.field, "invalid_value", str(error)) from None


def _read(value: Mapping[str, Any], before: Before) -> ResponseBody:
    request = read_request(value, before, of_call=True)
    fields = Fields(value)
    if not isinstance(value.get("stream_options"), dict | None):
        raise FieldError("stream_options", "must be an object")
    own = {name: value[name] for name in _OWN if name in value}
    body = read_body({**own, **request.input})
    store, background = value.get("store") is not False, fields.flag("background")
    fields.flag("store")
    if background and not store:
        raise FieldError(
            "store", "must not be false: background can only be used when `store` is true"
        )
    previous, conversation = value.get("previous_response_id"), conversation_of(value)
    if previous and conversation:
        raise FieldError("conversation", "can't be beside previous_response_id: leave one out")
    kept = {"store": store, "background": background, "previous_response_id": previous}
    if conversation:
        kept["conversation"] = {"id": conversation}
    return ResponseBody(
        model=body.model,
        input=body.input,
        stream=body.stream,
        include_usage=True,
        timeout_ms=body.timeout_ms,
        deadlines=body.deadlines,
        user=user_of(value),
        items=request.items,
        shown={**request.shown, **kept, "model": body.model},
        previous_response_id=previous,
        store=store,
        background=background,
        conversation_id=conversation,
    )


def conversation_of(value: Mapping[str, Any]) -> str | None:
    """Returns the id of the conversation that a request goes on with. Raises FieldError."""
    given = value.get("conversation")
    id = given.get("id") if isinstance(given, dict) else given
    if given is not None and (not isinstance(id, str) or not id):
        raise FieldError("conversation", "must be the id of a conversation, or an object with it")
    return id
