"""Outputs of generation requests: OpenAI's `chat.completion` and `text_completion` objects."""

from collections.abc import Sequence
from typing import Any

from jobs import clock
from jobs.models.inputs.generation import TokenUsage
from jobs.models.inputs.logprobs import of_completion
from jobs.models.inputs.tool_calls import with_tool_calls
from workers.engines.generator import TokenLogprob
from workers.generation.requests import Request, Sequenced


def completion(request: Request, model: str) -> dict[str, Any]:
    """Returns the output of a request that has ended, with the tool calls in its texts parsed.
    model: name@version."""
    asked = request.asked
    chat = asked.messages is not None
    choices = [_message(one) if chat else _text(one) for one in request.sequences]
    output = {
        "id": f"{'chatcmpl' if chat else 'cmpl'}-{request.id}",
        "object": "chat.completion" if chat else "text_completion",
        "created": int(clock.now().timestamp()),
        "model": model,
        "choices": choices,
        "usage": usage_object(request.usage),
    }
    return with_tool_calls(output) if asked.refers_to_tools else output


def usage_object(usage: TokenUsage) -> dict[str, Any]:
    """Returns OpenAI's `usage`."""
    return {
        "prompt_tokens": usage.input,
        "completion_tokens": usage.output,
        "total_tokens": usage.input + usage.output,
        "prompt_tokens_details": {"cached_tokens": usage.cached},
    }


def logprob_objects(logprobs: Sequence[TokenLogprob]) -> list[dict[str, Any]]:
    """Returns OpenAI's objects of `logprobs.content`."""
    return [
        {**_logprob(one), "top_logprobs": [_logprob(likely) for likely in one.top]}
        for one in logprobs
    ]


def echoed(sequence: Sequenced) -> str:
    """Returns the text that comes before that of a choice."""
    return storable(sequence.prompt.text) if sequence.prompt.request.echo else ""


def storable(text: str) -> str:
    """Returns a generated text with U+FFFD for each NUL, which PostgreSQL can't store."""
    return text.replace("\0", "\ufffd")


def _logprob(one: TokenLogprob) -> dict[str, Any]:
    return {
        "token": storable(one.text),
        "logprob": one.logprob,
        "bytes": list(one.own_bytes),
    }


def _message(sequence: Sequenced) -> dict[str, Any]:
    wanted = sequence.sampling.logprobs is not None
    return {
        "index": sequence.index,
        "message": {"role": "assistant", "content": _written(sequence), "refusal": None},
        "logprobs": {"content": logprob_objects(sequence.logprobs)} if wanted else None,
        **_end(sequence),
    }


def _text(sequence: Sequenced) -> dict[str, Any]:
    before = echoed(sequence)
    wanted = sequence.sampling.logprobs is not None
    seen = of_completion(logprob_objects(sequence.logprobs), len(before)) if wanted else None
    return {
        "index": sequence.index,
        "text": before + _written(sequence),
        "logprobs": seen,
        **_end(sequence),
    }


def _written(sequence: Sequenced) -> str:
    return storable("".join(sequence.text))


def _end(sequence: Sequenced) -> dict[str, Any]:
    """Returns why a choice ended; `stop_reason`, the stop string or token, is vLLM's."""
    end = {"finish_reason": sequence.finish}
    reason = sequence.stop_reason(sequence)
    return end if reason is None else {**end, "stop_reason": reason}
