"""Models as Anthropic's clients know them.

https://platform.claude.com/docs/en/api/models/list
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Literal

from fastapi import Request
from pydantic import BaseModel, Field

from jobs.errors import Fault, Invalid
from jobs.models.model import Model

_MARKS = (b"anthropic-version", b"x-api-key")


class AnthropicModel(BaseModel):
    """Model, in Anthropic's form."""

    id: str
    type: Literal["model"]
    display_name: str
    created_at: str = Field(
        description="when the version was registered, or its models file was written last",
        examples=["2025-11-20T10:20:00Z"],
    )
    lifecycle: Literal["active"]
    max_input_tokens: int | None = Field(
        default=None,
        description="most tokens of a sequence; null: not known",
        examples=[4096],
    )
    max_tokens: int | None = None


class AnthropicModelPage(BaseModel):
    """Page of models."""

    data: list[AnthropicModel]
    has_more: bool
    first_id: str | None
    last_id: str | None


def has_marks(headers: Mapping[bytes, bytes]) -> bool:
    """Returns True for the headers of a request that Anthropic's clients send."""
    return any(mark in headers for mark in _MARKS)


def is_meant(request: Request) -> bool:
    """Returns True for a request that expects Anthropic's format."""
    return has_marks(dict(request.scope["headers"]))


def model_object(name: str, model: Model) -> dict[str, Any]:
    """Returns the object of a model, by its name or as `name@version`."""
    return {
        "type": "model",
        "id": name,
        "display_name": name,
        "created_at": f"{datetime.fromtimestamp(model.created, UTC):%Y-%m-%dT%H:%M:%SZ}",
        "lifecycle": "active",
        "max_input_tokens": model.context_tokens or None,
        "max_tokens": None,
    }


def page(
    named: Mapping[str, Model], *, limit: int, after: str | None, before: str | None
) -> dict[str, Any]:
    """Returns the page of models after one, or right before one. Raises Invalid where that one is
    not among them."""
    names = list(named)
    start, stop = 0, len(names)
    if after is not None:
        start = _place(names, after, "after_id") + 1
    if before is not None:
        stop = _place(names, before, "before_id")
        start = max(start, stop - limit) if after is None else start
    shown = names[start : min(stop, start + limit)]
    has_more = start > 0 if before is not None and after is None else start + limit < stop
    return {
        "data": [model_object(name, named[name]) for name in shown],
        "has_more": has_more,
        "first_id": shown[0] if shown else None,
        "last_id": shown[-1] if shown else None,
    }


def _place(names: Sequence[str], name: str, field: str) -> int:
    if name in names:
        return names.index(name)
    message = f"{field} is {name!r}, and there is no such model"
    raise Invalid(message, faults=[Fault(("query", field), "invalid_value", message)])
