"""Outputs of generating models, and of upstreams, as completion objects of OpenAI."""

from typing import Any

import orjson

from jobs.errors import MillraceError
from jobs.models.inputs import chat
from jobs.models.inputs.tool_calls import with_tool_calls


def completion_of(raw: bytes, *, tools: bool) -> dict[str, Any]:
    """Returns the completion of an output. Raises MillraceError where that is none.

    tools: calls in the texts are parsed.
    """
    output = orjson.loads(raw)
    if isinstance(output, str):
        output = _of_text(output)
    choices = output.get("choices") if isinstance(output, dict) else None
    if not isinstance(choices, list) or not all(isinstance(choice, dict) for choice in choices):
        raise MillraceError("the model's output is no completion")
    if not tools:
        return output  # type: ignore[no-any-return]
    try:
        return with_tool_calls(output)
    except (KeyError, TypeError, AttributeError):
        raise MillraceError("the model's output is no chat completion") from None


def _of_text(text: str) -> dict[str, Any]:
    answer = chat.answer(text)
    message = {"role": "assistant", "content": answer.text, "refusal": None}
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": answer.finish}
    return {"choices": [choice]}
