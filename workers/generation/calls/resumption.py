"""Calls that another worker began: their requests go on from their logs."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from jobs.calls.messages import ChoiceDelta
from jobs.calls.streams.log import CallLog
from workers.engines.generator import TokenLogprob
from workers.generation.requests import Emission, Request

CANNOT_RESUME = (
    "stream_broken",
    "its worker ended, and the server that generates can't go on with a text that has begun: "
    "send the request again",
)
"""Error of a stream whose worker ended, of a generator that doesn't resume."""

_UNKNOWN_TOKEN = -1  # of a likely token that wasn't chosen: only its text is logged


@dataclass(frozen=True, slots=True)
class Notes:
    """Facts about a call that only its next worker needs, beside its log."""

    queue_s: float  #: until it was admitted
    ttft_s: float  #: until its first token
    #: tokens of the prompt that were in the cache, by choice
    cached: Mapping[int, int] = field(default_factory=dict)

    @classmethod
    def from_request(cls, request: Request) -> "Notes":
        """Returns those of a request that has begun."""
        arrived_s = request.arrived_s
        cached = {one.index: one.cached for one in request.sequences if one.cached}
        return cls(request.admitted_s - arrived_s, request.first_s - arrived_s, cached)

    def pack(self) -> bytes:
        """Returns JSON."""
        return orjson.dumps([self.queue_s, self.ttft_s, list(self.cached.items())])

    @classmethod
    def unpack(cls, packed: bytes) -> "Notes":
        """Reads JSON; nothing is known where it is empty."""
        queue_s, ttft_s, cached = orjson.loads(packed or b"[0.0, 0.0, []]")
        return cls(queue_s, ttft_s, dict(cached))


def resume(request: Request, log: CallLog) -> None:
    """Lets a request that has its sequences go on from a log, as if it had been here before."""
    if not log.deltas:
        return
    notes = Notes.unpack(log.notes)
    request.deltas = len(log.deltas)
    request.admitted_s = request.arrived_s + notes.queue_s
    request.first_s = request.arrived_s + notes.ttft_s
    parts: dict[int, list[ChoiceDelta]] = {}
    for delta in log.deltas:
        for part in delta.choices:
            parts.setdefault(part.index, []).append(part)
    for sequence in request.sequences:
        if its := parts.get(sequence.index):
            begins = sequence.prompt.request.opens
            own = its[1:] if begins else its
            cached = notes.cached.get(sequence.index, 0)
            sequence.resume(_emission(own, cached, its[0] if begins else None))


def _emission(parts: Sequence[ChoiceDelta], cached: int, opening: ChoiceDelta | None) -> Emission:
    finish: Any = parts[-1].finish
    return Emission(
        parts[0].index,
        [token for part in parts for token in part.tokens],
        "".join(part.text for part in parts),
        [one for part in parts for one in _logprobs(part)],
        finish,
        parts[-1].stopped_by,
        cached,
        opening,
    )


def _logprobs(part: ChoiceDelta) -> Iterable[TokenLogprob]:
    for token, one in zip(part.tokens, part.logprobs, strict=False):
        top = [_logprob(_UNKNOWN_TOKEN, likely) for likely in one["top_logprobs"]]
        yield _logprob(token, one, *top)


def _logprob(token: int, one: Mapping[str, Any], *top: TokenLogprob) -> TokenLogprob:
    return TokenLogprob(token, one["token"], one["logprob"], top, bytes(one["bytes"]))
