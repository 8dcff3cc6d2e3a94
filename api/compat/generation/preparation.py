"""Preparation of a generation request: from a body to a checked call."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from api.gateway.fallbacks import FallbackPlan, fallback_plans
from api.gateway.prepared import check_length
from api.gateway.routing.target import ReadyVersions, Target
from api.gateway.streaming.inbox import StreamDeadlines
from api.schemas.calls import MAX_CALL_TIMEOUT_MS
from api.services.call_preparation import end_after
from jobs.errors import Fault, Invalid
from jobs.intake import validation
from jobs.models.inputs.conversation import has_several
from jobs.models.inputs.fields import FieldError, Fields
from jobs.models.inputs.generation import MOST_CHOICES, parse_all
from jobs.models.inputs.request_fields import table
from jobs.models.inputs.tool_calls import wants_calls
from jobs.models.model import Model
from jobs.models.registry import Registry

OWN_FIELDS = table.names("chat", "call")  #: that are no part of the input


@dataclass(frozen=True, slots=True)
class GenerationBody:
    """Body of a request, read but not checked against its model."""

    model: str  #: as requested
    input: Mapping[str, Any]  #: generation input (jobs/models/inputs/generation.py)
    stream: bool
    include_usage: bool  #: a stream's last chunk has the usage
    timeout_ms: int
    deadlines: StreamDeadlines
    user: str = ""  #: of the caller, for routes that keep users at a version
    continuous_usage: bool = False  #: each chunk of a stream has the usage so far


@dataclass(frozen=True, slots=True)
class PreparedGeneration:
    """Request that is ready to be admitted."""

    body: GenerationBody  #: without its input
    target: Target
    value: bytes  #: input, as JSON
    plans: Iterable[FallbackPlan]
    choices: int
    tools: bool  #: the model may call tools
    is_chat: bool  #: of a conversation, not of a prompt
    size: int  #: of the input, in the model's unit
    token_ids: bool = False  #: the answer has the ids of tokens

    @property
    def model(self) -> Model:
        """Version that it is for."""
        return self.target.model

    @property
    def streams(self) -> bool:
        """True where the model's worker sends deltas."""
        return self.model.spec.generates

    @property
    def has_tokenizer(self) -> bool:
        """True where the model's worker knows the tokens of a prompt; another server keeps them."""
        return self.model.spec.generates and self.model.engine not in ("openai", "server")

    def shown_model(self, plan: FallbackPlan) -> str:
        """Returns the model's name for the response: as requested, unless another one served it."""
        return self.body.model if plan.model == self.model else plan.model.key


BodyReader = Callable[[Any], GenerationBody]
"""Reads the JSON value of a body, and raises Invalid. A function of a module: it is pickled."""


def refused(field: str, code: str, message: str) -> Invalid:
    """Returns the error of a field."""
    return Invalid(message, faults=[Fault((field,), code, message)])


def read_body(value: Any) -> GenerationBody:
    """Reads a body in OpenAI's form. Raises Invalid."""
    if not isinstance(value, dict):
        raise refused("body", "type", "the body must be an object")
    try:
        return _read_body(value)
    except FieldError as error:
        raise refused(error.field, "invalid_value", str(error)) from None


def _read_body(value: Mapping[str, Any]) -> GenerationBody:
    fields = Fields(value)
    if has_several(value.get("messages")):
        several = "several conversations go to POST /v1/chat/completions/batch"
        raise FieldError("messages[0]", f"must be an object: {several}")
    model = value.get("model")
    if not isinstance(model, str) or not model:
        raise FieldError("model", "must be the name of a model")
    options = value.get("stream_options")
    stream = fields.flag("stream")
    if options is not None and not (stream and isinstance(options, dict)):
        raise FieldError("stream_options", 'must be an object, and goes with "stream": true')
    if options:
        table.check("chat", {"stream_options": options}, of_call=True)
    chosen, defaults = Fields(options or {}, "stream_options."), StreamDeadlines()
    first_ms = fields.whole("first_token_ms", 1, MAX_CALL_TIMEOUT_MS) or defaults.first_token_ms
    idle_ms = fields.whole("idle_ms", 1, MAX_CALL_TIMEOUT_MS) or defaults.idle_ms
    include_usage = chosen.flag("include_usage")
    return GenerationBody(
        model=model,
        input={name: part for name, part in value.items() if name not in OWN_FIELDS},
        stream=stream,
        include_usage=include_usage,
        timeout_ms=fields.whole("timeout_ms", 1, MAX_CALL_TIMEOUT_MS) or MAX_CALL_TIMEOUT_MS,
        deadlines=StreamDeadlines(first_ms, idle_ms),
        user=user_of(value),
        continuous_usage=include_usage and chosen.flag("continuous_usage_stats"),
    )


def user_of(value: Mapping[str, Any]) -> str:
    """Returns the user that a body in OpenAI's form names; "": none."""
    named = value.get("safety_identifier") or value.get("user")
    return named if isinstance(named, str) else ""


def prepare_light(models: Registry, target: Target, body: GenerationBody) -> PreparedGeneration:
    """Checks a body against its model. Raises Invalid."""
    value, model = body.input, target.model
    if model.spec.generates:
        try:
            parse_all(value)
        except FieldError as error:
            raise refused(error.field, "invalid_value", str(error)) from None
    elif model.effective_task != "chat":
        raise refused("model", "model_not_supported", f"{model.key} generates no text")
    elif "messages" not in value:
        raise refused("model", "model_not_supported", f"{model.key} takes conversations only")
    item = validation.check({"input": value}, (), None, model, not model.spec.generates)
    if isinstance(item, list):
        raise Invalid("; ".join(fault.message for fault in item), faults=item)
    choices = value.get("n")
    return PreparedGeneration(
        body=replace(body, input={}),
        target=target,
        value=item.input,
        plans=fallback_plans(models, target, value, {}),
        choices=choices if type(choices) is int and 1 <= choices <= MOST_CHOICES else 1,
        tools=wants_calls(value),
        is_chat="messages" in value,
        size=model.size(value, {}),
        token_ids=value.get("return_token_ids") is True,
    )


def prepare_heavy(
    models: Registry, raw: bytes, ready: ReadyVersions, read: BodyReader
) -> PreparedGeneration:
    """Parses and checks a body, in a child process."""
    body = read(validation.parse_call(raw))
    end_after(body.timeout_ms)
    target = ready.target(models, body.model, body.user)
    check_length(raw, target.model)
    prepared = prepare_light(models, target, body)
    return replace(prepared, plans=tuple(prepared.plans))
