"""Whole answers of chat completions and completions."""

from typing import Any

from api.compat.generation.answering import Answer
from api.gateway.inference import CallResult
from jobs.dialects.completions import completion_of
from jobs.models.inputs import logprobs

CHAT, TEXT = "chatcmpl-", "cmpl-"


def chat_completion(answer: Answer, result: CallResult) -> dict[str, Any]:
    """Returns a `chat.completion` object."""
    completion = completion_of(result.output, tools=answer.prepared.tools)
    return {**completion, **_head(answer, result, CHAT, "chat.completion")}


def text_completion(answer: Answer, result: CallResult) -> dict[str, Any]:
    """Returns a `text_completion` object."""
    completion = completion_of(result.output, tools=False)
    head = _head(answer, result, TEXT, "text_completion")
    return {**completion, **head, "choices": list(map(_text_choice, completion["choices"]))}


def _head(answer: Answer, result: CallResult, prefix: str, object: str) -> dict[str, Any]:
    head = {
        "id": answer.id(prefix),
        "object": object,
        "created": answer.created,
        "model": answer.prepared.shown_model(result.plan),
    }
    return {**head, "degraded": result.plan.degraded} if result.plan.degraded else head


def _text_choice(choice: dict[str, Any]) -> dict[str, Any]:
    found = choice.get("logprobs")
    if not isinstance(found, dict) or "content" not in found:
        return choice
    return {**choice, "logprobs": logprobs.of_completion(found["content"], 0)}
