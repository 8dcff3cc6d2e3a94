"""Chats that go on with a text which began elsewhere: the server gets it as the last message.

`continue_final_message` is vLLM's: the chat template leaves the last message open. Templates trim
that message, so its trailing white space isn't sent, and taken off what comes.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from jobs.models.inputs.generation import TokenUsage
from workers.engines.generator import Emitted, NewSequence
from workers.engines.protocol import Permanent


def continued(body: dict[str, Any], new: NewSequence) -> dict[str, Any]:
    """Returns the body of a sequence that goes on with its text, with what is left of its budget.
    Raises Permanent for one that the server can't go on with."""
    request, before = new.prompt.request, len(new.emitted)
    if request.constraint or request.refers_to_tools:
        raise Permanent(
            "a text that a grammar binds, or that may hold tool calls, can't go on at another "
            "worker of this model: the server would begin it anew; send the request again"
        )
    if request.truncation.keeps_first:
        raise Permanent(
            'with "truncation_side": "right" a text can\'t go on at another worker of this model: '
            "the server would cut it off; send the request again"
        )
    messages, text = list(body["messages"]), new.text
    if request.rendering.continue_final_message:
        text = messages.pop()["content"] + text
    messages.append({"role": "assistant", "content": text.rstrip()})
    left = {name: max(1, body[name] - before) for name in ("max_tokens",) if name in body}
    least = max(0, body.get("min_tokens", 0) - before)
    rest = {name: value for name, value in body.items() if name != "min_tokens"}
    return {
        **rest,
        **left,
        **({"min_tokens": least} if least else {}),
        "messages": messages,
        "add_generation_prompt": False,
        "continue_final_message": True,
    }


def as_rest(emitted: Iterable[Emitted], new: NewSequence) -> Iterator[Emitted]:
    """Yields what the server emits as the rest of a sequence: without the white space that it had,
    and with the usage of the whole."""
    had = new.text[len(new.text.rstrip()) :]
    before = len(new.emitted)
    for one in emitted:
        shared = 0
        while shared < min(len(had), len(one.text)) and had[shared] == one.text[shared]:
            shared += 1
        if one.text:
            had = had[shared:] if shared == len(one.text) else ""
        usage = one.usage and _whole(one.usage, before)
        yield replace(one, text=one.text[shared:], usage=usage)


def _whole(usage: TokenUsage, before: int) -> TokenUsage:
    """Returns the usage of a sequence of which the server counted the first tokens as input."""
    size = max(0, usage.input - before)
    return TokenUsage(size, min(usage.cached, size), before + usage.output)
