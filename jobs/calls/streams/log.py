"""Log of a call that generates: all its deltas, then its reply, in Redis beside its lanes.

Its worker appends a delta before it is sent, in the same step, and only while it holds the call:
another worker goes on from the log, and an api process reads it from any delta on.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from jobs.calls.accounting.quota_arguments import BILLED_TTL_S
from jobs.calls.keys import Keys
from jobs.calls.messages import (
    DELTAS,
    Call,
    Delta,
    Reply,
    class_of,
    pack_delta,
    pack_replies,
    unpack_deltas,
)

KEPT_S = 60
"""Time (s) for which the log of a stream is kept after its end, or after its deadline."""

MOST_DEATHS = 16
"""Deaths of workers from which on a call runs alone, however much it generated: it may be the
reason."""


@dataclass(frozen=True, slots=True)
class Progress:
    """Delta of a call, to be logged and, where the call streams, sent."""

    call: Call  #: as it was taken
    delta: Delta
    notes: bytes = b""  #: see CallLog; empty: as before


@dataclass(frozen=True, slots=True)
class CallLog:
    """Output of a call so far, by the workers that had it before."""

    deltas: Sequence[Delta] = ()  #: from number 0, without a gap
    notes: bytes = b""  #: JSON of its worker, which api processes don't need


def progress_arguments(keys: Keys, progress: Sequence[Progress], reply_ttl_s: int) -> list[Any]:
    """Returns the arguments of STREAM."""
    arguments: list[Any] = [keys.replies(""), reply_ttl_s, DELTAS, KEPT_S * 1000]
    for one in progress:
        call, number = one.call, one.delta.number
        arguments += (call.id, call.holder, number, int(call.stream), pack_delta(one.delta))
        arguments.append(one.notes)
    return arguments


def end_arguments(keys: Keys, ends: Sequence[tuple[Call, Reply]], reply_ttl_s: int) -> list[Any]:
    """Returns the arguments of END."""
    arguments: list[Any] = [keys.replies(""), reply_ttl_s, BILLED_TTL_S, KEPT_S]
    for call, reply in ends:
        arguments += (call.holder, int(call.stream), pack_replies([reply], call.reply_to))
        arguments += usage_arguments(reply)
    return arguments


def usage_arguments(reply: Reply) -> list[Any]:
    """Returns the arguments by which scripts count a reply (lua/count.lua)."""
    succeeded, used = int(reply.error is None), reply.tokens
    tokens = f"{used.input} {used.cached} {used.output}" if used else ""
    whose = f"{class_of(reply)} {reply.tenant}" if reply.billed else ""
    return [reply.id, whose, succeeded, reply.units, reply.device_us, tokens]


def read_log(notes: bytes, entries: Sequence[bytes]) -> CallLog:
    """Reads an answer of LOGS about one call."""
    deltas = (unpack_deltas(entry)[0] for entry in entries if entry.startswith(DELTAS))
    return CallLog(tuple(deltas), notes)
