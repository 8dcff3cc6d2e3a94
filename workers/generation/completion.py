"""Outputs of generation requests: OpenAI's `chat.completion` and `text_completion` objects."""

from collections.abc import Sequence
from typing import Any

from jobs import clock
from jobs.calls.messages import ChoiceDelta
from jobs.models.inputs.generation import GenerationRequest, TokenUsage
from jobs.models.inputs.logprobs import of_completion
from jobs.models.inputs.tool_calls import with_tool_calls
from workers.engines.generator import Prompt, TokenLogprob
from workers.generation.requests import Request, Sequenced


def completion(request: Request, model: str) -> dict[str, Any]:
    """Returns the output of a request that has ended, with the tool calls in its texts parsed.
    model: name@version."""
    asked = request.asked
    chat = asked.messages is not None
    several = len(request.prompts) > 1
    choices = [_message(one, several) if chat else _text(one) for one in request.sequences]
    output: dict[str, Any] = {
        "id": f"{'chatcmpl' if chat else 'cmpl'}-{request.id}",
        "object": "chat.completion" if chat else "text_completion",
        "created": int(clock.now().timestamp()),
        "model": model,
        "choices": choices,
        "usage": usage_object(request.usage),
    }
    if chat and not several:
        output |= _of_prompt(request.sequences[0])
    return with_tool_calls(output) if asked.refers_to_tools else output


def usage_object(usage: TokenUsage) -> dict[str, Any]:
    """Returns OpenAI's `usage`, and in it how many tokens of the prompt were cut away, if any."""
    counted = {
        "prompt_tokens": usage.input,
        "completion_tokens": usage.output,
        "total_tokens": usage.input + usage.output,
        "prompt_tokens_details": {"cached_tokens": usage.cached},
    }
    return {**counted, "truncated": usage.truncated} if usage.truncated else counted


def logprob_objects(
    logprobs: Sequence[TokenLogprob], asked: GenerationRequest, most: int | None = None
) -> list[dict[str, Any]]:
    """Returns OpenAI's objects of `logprobs.content`. most: likely tokens of each; None: all."""
    written = _logprob_by_id if asked.tokens_as_ids else _logprob
    return [
        {**written(one), "top_logprobs": [written(likely) for likely in one.top[:most]]}
        for one in logprobs
    ]


def opening(sequence: Sequenced, logprobs: Sequence[TokenLogprob]) -> ChoiceDelta | None:
    """Returns what comes before the output of a choice: the echoed prompt, and what is reported of
    the prompt's tokens. logprobs: one a token."""
    request = sequence.prompt.request
    if not request.opens:
        return None
    echoed = sequence.sampling.logprobs if request.echoes_prompt else None
    listed = request.prompt_logprobs
    return ChoiceDelta(
        sequence.index,
        storable(_echoed(sequence.prompt)) if request.echo else "",
        logprobs=() if echoed is None else logprob_objects(logprobs, request, echoed),
        prompt_logprobs=() if listed is None else [_by_id(one, listed) for one in logprobs],
        prompt_tokens=list(sequence.prompt.tokens) if request.return_token_ids else (),
    )


def _echoed(prompt: Prompt) -> str:
    messages = prompt.request.messages
    return prompt.text if messages is None else str(messages[-1]["content"])


def storable(text: str) -> str:
    """Returns a generated text with U+FFFD for each NUL, which PostgreSQL can't store."""
    return text.replace("\0", "\ufffd")


def _logprob(one: TokenLogprob) -> dict[str, Any]:
    return {
        "token": storable(one.text),
        "logprob": one.logprob,
        "bytes": list(one.own_bytes),
    }


def _logprob_by_id(one: TokenLogprob) -> dict[str, Any]:
    if one.token < 0:  # of a server, which was asked to name it so, or of a log
        return _logprob(one)
    name = f"token_id:{one.token}"
    return {"token": name, "logprob": one.logprob, "bytes": list(name.encode())}


def _by_id(one: TokenLogprob, most: int) -> dict[str, Any] | None:
    """Returns vLLM's object of a prompt's token: of it and the likeliest, by id."""
    if one.logprob is None:
        return None
    return {
        str(its.token): {
            "logprob": its.logprob,
            "rank": its.rank,
            "decoded_token": storable(its.own_bytes.decode(errors="replace")),
        }
        for its in (one, *one.top[:most])
    }


def _of_prompt(sequence: Sequenced) -> dict[str, Any]:
    """Returns what is reported of the prompt's tokens."""
    found: dict[str, Any] = {}
    if sequence.opening and sequence.opening.prompt_logprobs:
        found["prompt_logprobs"] = sequence.opening.prompt_logprobs
    if sequence.prompt.request.return_token_ids:
        found["prompt_token_ids"] = list(sequence.prompt.tokens)
    return found


def _message(sequence: Sequenced, several: bool) -> dict[str, Any]:
    """several: conversations, so that what is reported of the prompt is the choice's own."""
    before = sequence.opening.text if sequence.opening else ""
    seen = None
    if sequence.sampling.logprobs is not None:
        seen = {"content": logprob_objects(sequence.logprobs, sequence.prompt.request)}
    return {
        "index": sequence.index,
        "message": {"role": "assistant", "content": before + _written(sequence), "refusal": None},
        "logprobs": seen,
        **(_of_prompt(sequence) if several else {}),
        **_token_ids(sequence),
        **_end(sequence),
    }


def _text(sequence: Sequenced) -> dict[str, Any]:
    before = sequence.opening or ChoiceDelta(sequence.index)
    seen = None
    if sequence.sampling.logprobs is not None:
        found = logprob_objects(sequence.logprobs, sequence.prompt.request)
        seen = of_completion(found, len(before.text))
        prompt = of_completion(before.logprobs, 0)
        seen = {name: prompt[name] + its for name, its in seen.items()}
    return {
        "index": sequence.index,
        "text": before.text + _written(sequence),
        "logprobs": seen,
        **_of_prompt(sequence),
        **_token_ids(sequence),
        **_end(sequence),
    }


def _token_ids(sequence: Sequenced) -> dict[str, Any]:
    asked = sequence.prompt.request
    return {"token_ids": sequence.emitted} if asked.return_token_ids else {}


def _written(sequence: Sequenced) -> str:
    return storable("".join(sequence.text))


def _end(sequence: Sequenced) -> dict[str, Any]:
    """Returns why a choice ended; `stop_reason`, the stop string or token, is vLLM's."""
    end = {"finish_reason": sequence.finish}
    reason = sequence.stop_reason(sequence)
    return end if reason is None else {**end, "stop_reason": reason}
