"""The `response` object, in every state of a response."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from jobs.dialects.responses.output import OutputBuilder
from jobs.errors import MillraceError

PREFIX = "resp"
_NO_COMPLETION = "the model's output is no chat completion"
_FAILURES = {
    "invalid_input": "invalid_prompt",
    "invalid": "invalid_prompt",
    "rate_limited": "rate_limit_exceeded",
}
"""OpenAI's codes of failed responses by ours; others are `server_error`."""

Ended = Mapping[str, Any]
"""Fields that a response gains at its end: status, output, usage, error, incomplete_details."""


def response_object(
    id: str, created_at: int, shown: Mapping[str, Any], ended: Ended | None = None, *,
    status: str = "in_progress",
) -> dict[str, Any]:  # fmt: skip
    """Returns the object of a response. shown: what it repeats of its request, and the time of its
    creation where that is another one; status: of one that has not ended."""
    return {
        "id": id,
        "object": "response",
        "created_at": created_at,
        "completed_at": None,
        "status": status,
        "error": None,
        "incomplete_details": None,
        "output": [],
        "usage": None,
        "reasoning": {"effort": None, "summary": None},
        **shown,
        "truncation": "disabled",
        "service_tier": "default",
        **(ended or {}),
    }


def output_of(
    completion: Mapping[str, Any], digits: str, *, tools: bool, ended_at: int
) -> dict[str, Any]:
    """Returns what a response has gained by a completion, whose calls may be in its text. Raises
    MillraceError where that is none of a chat."""
    builder = OutputBuilder(digits, tools=tools)
    with refusing_others():
        choice = choice_of(completion)
        complete = choice.get("finish_reason") not in ("length", "content_filter")
        builder.take_message(choice["message"], complete=complete)
        add_logprobs(builder.items, choice)
        return gained(builder.items, completion, ended_at=ended_at)


@contextmanager
def refusing_others() -> Iterator[None]:
    """Raises MillraceError where a completion that is read inside is none of a chat: a model may
    put anything where its tool calls, log probabilities and usage would be."""
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError):
        raise MillraceError(_NO_COMPLETION) from None


def choice_of(completion: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the only choice of a chat completion. Raises MillraceError where it is none."""
    choices = completion["choices"]
    if not choices or not isinstance(choices[0].get("message"), dict):
        raise MillraceError(_NO_COMPLETION)
    found: Mapping[str, Any] = choices[0]
    return found


def add_logprobs(items: Sequence[dict[str, Any]], choice: Mapping[str, Any]) -> None:
    """Adds the log probabilities of a choice to the message, where that is the only item."""
    content = (choice.get("logprobs") or {}).get("content") or []
    if len(items) == 1 and items[0]["type"] == "message" and content:
        builder = OutputBuilder("", tools=False)
        builder.feed("", content)
        items[0]["content"][0]["logprobs"] = builder.items[0]["content"][0]["logprobs"]


def gained(
    items: Sequence[Mapping[str, Any]], completion: Mapping[str, Any], *, ended_at: int
) -> dict[str, Any]:
    """Returns what a response has gained at its end, with these items."""
    finish = choice_of(completion).get("finish_reason")
    reasons = {"length": "max_output_tokens", "content_filter": "content_filter"}
    reason = reasons.get(str(finish))
    ended: dict[str, Any] = {
        "status": "incomplete" if reason else "completed",
        "output": list(items),
        "usage": usage_of(completion.get("usage")),
    }
    if reason:
        return {**ended, "incomplete_details": {"reason": reason}}
    return {**ended, "completed_at": ended_at}


def failed(code: str, message: str, items: Sequence[Mapping[str, Any]] = ()) -> dict[str, Any]:
    """Returns what a response has gained that failed."""
    error = {"code": _FAILURES.get(code, "server_error"), "message": message}
    return {"status": "failed", "error": error, "output": list(items)}


def cancelled() -> dict[str, Any]:
    """Returns what a response has gained that was cancelled."""
    return {"status": "cancelled"}


def usage_of(usage: Mapping[str, Any] | None) -> dict[str, Any]:
    """Returns the usage of a chat completion as a response has it."""
    counted = usage or {}
    details = counted.get("prompt_tokens_details") or {}
    input, output = counted.get("prompt_tokens") or 0, counted.get("completion_tokens") or 0
    cached = details.get("cached_tokens") or 0 if isinstance(details, dict) else 0
    return {
        "input_tokens": input,
        "input_tokens_details": {"cached_tokens": cached, "cache_write_tokens": 0},
        "output_tokens": output,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": input + output,
    }
