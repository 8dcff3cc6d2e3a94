"""Conversations: inputs and outputs of chat models.

An input is an OpenAI chat-completions body without `model` and `stream`; an output is an OpenAI
`chat.completion` object, or the assistant's text alone.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jobs.models.inputs.generation import TokenUsage

_MOST_TOKENS = 2**31 - 1  # of a result; a larger count isn't believed
_ROLES = frozenset({"system", "developer", "user", "assistant", "tool"})


def refuse(value: Any) -> str | None:
    """Returns what is wrong with an input, or None."""
    if not isinstance(value, dict):
        return 'takes an object: {"messages": [{"role", "content"}, …], …}'
    messages = value.get("messages")
    if not isinstance(messages, list) or not messages:
        return 'needs "messages", an array of at least one'
    if isinstance(messages[0], list):
        return "takes one conversation at a time: messages[0] must be an object"
    for n, message in enumerate(messages):
        role = message.get("role") if isinstance(message, dict) else None
        if not isinstance(role, str) or role not in _ROLES:
            return f"needs a role in messages[{n}]: {', '.join(sorted(_ROLES))}"
        if not isinstance(message.get("content"), str | list | None):
            return f"takes a text or an array of parts as messages[{n}].content"
    for name in ("model", "stream"):
        if value.get(name):
            return f"takes no {name!r} in an input"
    return None


@dataclass(frozen=True, slots=True)
class ChatAnswer:
    """Message of an assistant."""

    text: str
    finish: str = "stop"  #: "stop", "length", …
    #: prompt_tokens and completion_tokens, where the model counted them
    usage: Mapping[str, Any] | None = None
    calls: Sequence[Mapping[str, Any]] = ()  #: of tools, OpenAI's objects
    stopped_by: str | None = None  #: stop string that ended it


def answer(output: Any) -> ChatAnswer:
    """Reads an output. Raises ValueError where it is neither a text nor a completion."""
    if isinstance(output, str):
        return ChatAnswer(output)
    try:
        choice = output["choices"][0]
        text, finish = choice["message"]["content"], choice.get("finish_reason")
        calls = choice["message"].get("tool_calls")
        usage, stopped_by = output.get("usage"), choice.get("stop_reason")
    except (TypeError, KeyError, IndexError, AttributeError):
        raise ValueError("the model answered neither a text nor a chat.completion") from None
    if not isinstance(text, str | None):
        raise ValueError("the model's message holds no text")
    finish = finish if isinstance(finish, str) else "stop"
    return ChatAnswer(
        text or "",
        finish,
        usage if isinstance(usage, dict) else None,
        calls if isinstance(calls, list) else (),
        stopped_by if isinstance(stopped_by, str) and finish == "stop" else None,
    )


def usage_of(output: Any) -> TokenUsage | None:
    """Returns the tokens that a completion counts; None where it counts none."""
    return token_usage(output.get("usage")) if isinstance(output, dict) else None


def token_usage(usage: Any) -> TokenUsage | None:
    """Reads OpenAI's usage of a completion; None where it has neither of its counts."""
    if not isinstance(usage, dict):
        return None
    prompt, answer = usage.get("prompt_tokens"), usage.get("completion_tokens")
    if type(prompt) is not int and type(answer) is not int:
        return None
    details = usage.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, dict) else None
    size = _count(prompt)
    return TokenUsage(size, min(_count(cached), size), _count(answer))


def _count(value: Any) -> int:
    return min(value, _MOST_TOKENS) if type(value) is int and value > 0 else 0
