"""Messages: a call to a worker, replies and deltas to the api process that sent it.

A worker pushes at most one message of deltas a step and api process onto the list of its replies.
The deltas of a call are numbered from 0 without a gap, also where several workers generated them:
each is in the call's log (jobs/calls/streams/log.py). The reply that ends the call says how many
there were (`timing["deltas"]`), and holds the whole output.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import orjson

from jobs.immutable import immutable
from jobs.models.inputs.generation import TokenUsage
from jobs.states import JobClass

FRAMED = ".framed"
"""End of the `reply_to` of an api process that reads outputs beside the JSON of their replies."""

COUNTED = "count_tokens"
"""The only field of a call's input that asks for the tokens of the prompt in it, and for no text.
No client's input has it: the api adds it after its checks."""

TOLD = "told"
"""Beside COUNTED: what else is told of the prompt (`Told`)."""

Told = Literal["", "tokens", "token_strs", "text"]
"""Only how many tokens there are; those; those with their names; or the text of a prompt of ids."""

DELTAS = b"~"
"""First byte of a message of deltas; replies begin with a bracket."""

LOST = b"!"
"""First byte of a message that an api process sends itself: calls that Redis has lost, unless a
message before it has their replies."""

OF_ADAPTER = "/"
"""Between class and adapter in the names of counts."""

SHADOW = "shadow"
"""Cohort of copies of calls, whose answers are compared and dropped: nobody pays for them."""

_PROMPT, _PROMPT_TOKENS = "prompt_logprobs", "prompt_tokens"
_OWN_BYTES = "own_bytes"  # of a token, where they aren't those of its text
_ADAPTED = "adapted"  # wraps the input of a call with an adapter

UnpackedReply: TypeAlias = tuple[str, bytes | None, list[str] | None, int, dict[str, Any]]


@immutable
class Call:
    """One synchronous request."""

    id: str
    lane: str
    tenant: str
    input: Any  #: value itself
    size: int  #: in the model's unit
    reply_to: str  #: api process that waits for the reply; without spaces
    weight: float = 1.0  #: of the tenant
    job_class: JobClass = "standard"  #: decides about the price
    enqueued_ms: float = 0.0  #: on the lanes' own clock, set by `put`
    deadline_ms: float = 0.0  #: on the lanes' own clock, set by `put`
    trace: str = ""  #: packed TraceContext of its span, where that is sampled
    stream: bool = False  #: deltas are sent as they come (`Delta`)
    resume_within_s: int = 0  #: it runs on for so long after its client was lost
    #: "worker#token" of the take that gave it: only its holder may write to its log, and end it
    holder: str = field(default="", compare=False)
    adapter: str = ""  #: of the model, by its own name
    #: part of a rollout (jobs/rollouts/cohorts.py), or SHADOW; "": none
    cohort: str = ""

    @property
    def billed(self) -> bool:
        """False for a copy, which nobody pays for."""
        return self.cohort != SHADOW


@immutable
class Reply:
    """End of one call: an output or an error."""

    id: str
    output: bytes | None  #: JSON text
    error: tuple[str, str] | None  #: code, message
    units: int  #: size
    #: ms; and what apis show elsewhere or nowhere: `worker`, `token_ms`, and, of a text that was
    #: cut, `truncated`, the tokens that it lost
    timing: dict[str, Any]
    tenant: str = ""  #: billed tenant
    job_class: JobClass = "standard"  #: billed class
    device_us: int = 0  #: its share of the device's time
    tokens: TokenUsage | None = None  #: billed tokens, of a model that generates
    adapter: str = ""  #: billed adapter
    billed: bool = True  #: see Call


@dataclass(frozen=True, slots=True)
class ChoiceDelta:
    """New part of one choice."""

    index: int  #: of the choice
    text: str = ""
    tokens: Sequence[int] = ()
    #: OpenAI's objects of `logprobs.content`, one a token, where they were requested
    logprobs: Sequence[dict[str, Any]] = ()
    finish: str | None = None  #: finish reason, with the last delta of the choice
    stopped_by: str | int | None = None  #: stop string or token that ended it, with the reason
    #: of the prompt's tokens, as vLLM's field of this name, before the first delta of the choice
    prompt_logprobs: Sequence[dict[str, Any] | None] = ()
    #: ids of the prompt's tokens, where they were requested, before the first delta of the choice
    prompt_tokens: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class Delta:
    """Part of one call's output."""

    id: str  #: of the call
    number: int  #: from 0
    choices: Sequence[ChoiceDelta] = field(default_factory=tuple)
    prompt: Sequence[int] = ()  #: its tokens, and those of them that were cached; with number 0


@immutable
class CallUsage:
    """Usage of one tenant, class and adapter in one minute: of answered calls, each once."""

    minute: int  #: since 1970, on the lanes' clock
    tenant: str
    job_class: str
    succeeded: int = 0
    failed: int = 0
    units: int = 0
    device_us: int = 0
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    adapter: str = ""  #: own name; "": the model itself


def class_of(used: Reply | CallUsage) -> str:
    """Returns the class under which usage is counted: "class", or "class/adapter"."""
    return f"{used.job_class}{OF_ADAPTER}{used.adapter}" if used.adapter else used.job_class


def pack_call(call: Call) -> bytes:
    """Packs a call; older releases can read one without trace and stream: it has no more fields.
    jobs/calls/lua/orphans.lua reads the eighth one.

    They know no adapters, and must not answer without: they refuse the input, which is wrapped. Of
    a cohort they know nothing."""
    value = {_ADAPTED: call.input} if call.adapter else call.input
    packed = [call.tenant, value, call.size, call.weight, call.job_class]
    more: list[Any] = [call.trace, True] if call.stream else [call.trace] if call.trace else []
    if call.resume_within_s:
        more.append(call.resume_within_s)
    if call.adapter or call.cohort:
        more = [call.trace, call.stream, call.resume_within_s or None, call.adapter]
    if call.cohort:
        more.append(call.cohort)
    return orjson.dumps([*packed, *more])


def unpack_call(
    id: str, head: bytes, packed: bytes, offset_ms: float = 0.0, holder: str = ""
) -> Call:
    """Unpacks a call. head: "enqueued deadline reply_to lane", which the lanes store apart;
    offset_ms: is added to its times; holder: see Call."""
    tenant, value, size, weight, job_class, *more = orjson.loads(packed)
    enqueued, deadline, reply_to, lane = head.decode().split(" ", 3)
    times = float(enqueued) + offset_ms, float(deadline) + offset_ms
    given: list[Any] = [*more, *("", False, 0, "", "")[len(more) :]]
    trace, stream, resume_within_s, adapter, cohort = given[:5]
    if adapter:
        value = value[_ADAPTED]
    named = id, lane, tenant, value, size, reply_to, weight, job_class
    return Call(*named, *times, trace, stream, resume_within_s or 0, holder, adapter, cohort)


def pack_replies(replies: Sequence[Reply], reply_to: str) -> bytes:
    """Packs all replies of a launch for one api process as one message.

    A line of JSON, in which an output is its length in bytes (0: none), then the outputs; all in
    JSON for an api of an earlier release.
    """
    if not reply_to.endswith(FRAMED):
        return orjson.dumps(
            [
                [r.id, orjson.Fragment(r.output or b"null"), r.error, r.units, r.timing]
                for r in replies
            ]
        )
    heads = [[r.id, len(r.output or b""), r.error, r.units, r.timing] for r in replies]
    return b"".join((orjson.dumps(heads), b"\n", *(r.output or b"" for r in replies)))


def unpack_replies(packed: bytes) -> list[UnpackedReply]:
    """Returns (id, output as JSON text, error, units, timing) of each reply; parses no output,
    unless a script or a worker of an earlier release sent it."""
    start = packed.find(b"\n") + 1
    if not start:
        return [
            (id, None if error else orjson.dumps(output), error, units, timing)
            for id, output, error, units, timing in orjson.loads(packed)
        ]
    found = []
    for id, length, error, units, timing in orjson.loads(memoryview(packed)[:start]):
        end = start + length
        found.append((id, packed[start:end] if length else None, error, units, timing))
        start = end
    return found


def pack_deltas(deltas: Sequence[Delta]) -> bytes:
    """Packs the deltas of one step for one api process."""
    return DELTAS + b"[" + b",".join(map(pack_delta, deltas)) + b"]"


def pack_delta(delta: Delta) -> bytes:
    """Packs a delta as part of a message.

    Older releases read six elements of a choice, and decode the `bytes` of a token: they get those
    of its text, and its own under another name. What is reported of the prompt stands where
    `stopped_by` does, which no delta before the output has."""
    choices = list(map(_packed, delta.choices))
    return orjson.dumps([delta.id, delta.number, choices, delta.prompt])


def _packed(choice: ChoiceDelta) -> list[Any]:
    logprobs = choice.logprobs and list(map(_decodable, choice.logprobs))
    packed = [choice.index, choice.text, choice.tokens, logprobs, choice.finish]
    if choice.prompt_logprobs or choice.prompt_tokens:
        tokens = {_PROMPT_TOKENS: choice.prompt_tokens} if choice.prompt_tokens else {}
        return [*packed, {_PROMPT: choice.prompt_logprobs, **tokens}]
    return packed if choice.stopped_by is None else [*packed, choice.stopped_by]


def _decodable(token: dict[str, Any]) -> dict[str, Any]:
    """Returns an object of a token as older releases read it."""
    own, likely = token["bytes"], token.get("top_logprobs")
    more = {"top_logprobs": list(map(_decodable, likely))} if likely else {}
    text = list(token["token"].encode())
    if own != text:
        more |= {"bytes": text, _OWN_BYTES: own}
    return {**token, **more} if more else token


def _unpacked(
    index: int,
    text: str,
    tokens: Sequence[int],
    logprobs: Sequence[dict[str, Any]],
    finish: str | None,
    end: Any = None,
) -> ChoiceDelta:
    for token in logprobs:
        for one in (token, *token.get("top_logprobs", ())):
            if _OWN_BYTES in one:
                one["bytes"] = one.pop(_OWN_BYTES)
    if isinstance(end, dict):
        reported = {"prompt_logprobs": end[_PROMPT], "prompt_tokens": end.get(_PROMPT_TOKENS, ())}
        return ChoiceDelta(index, text, tokens, logprobs, finish, **reported)
    return ChoiceDelta(index, text, tokens, logprobs, finish, end)


def pack_lost(ids: Sequence[str]) -> bytes:
    """Packs the ids of lost calls."""
    return LOST + orjson.dumps(ids)


def unpack_lost(packed: bytes) -> list[str]:
    """Unpacks a message of lost calls, which begins with LOST."""
    ids: list[str] = orjson.loads(memoryview(packed)[len(LOST) :])
    return ids


def unpack_deltas(packed: bytes) -> list[Delta]:
    """Unpacks a message of deltas, which begins with DELTAS."""
    return [
        Delta(
            id,
            number,
            tuple(
                _unpacked(*one) if one[3] or type(one[-1]) is dict else ChoiceDelta(*one)
                for one in choices
            ),
            *prompt,
        )
        for id, number, choices, *prompt in orjson.loads(memoryview(packed)[len(DELTAS) :])
    ]
