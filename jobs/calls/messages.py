"""What travels: a call to a worker, replies to the api process that asked."""

from dataclasses import dataclass
from typing import Any

import orjson

from jobs.states import JobClass


@dataclass(frozen=True, slots=True)
class Call:
    """One synchronous request. input: the value itself; size: in the model's unit; reply_to:
    the asking api process, without spaces; weight: its tenant's; job_class: what it is billed as;
    *_ms: milliseconds on the lanes' own clock, set when it is put; trace: the packed TraceContext
    of its span, where that is sampled."""

    id: str
    lane: str
    tenant: str
    input: Any
    size: int
    reply_to: str
    weight: float = 1.0
    job_class: JobClass = "standard"
    enqueued_ms: float = 0.0
    deadline_ms: float = 0.0
    trace: str = ""


@dataclass(frozen=True, slots=True)
class Reply:
    """The end of one call: an output (JSON text), or an error (code, message). timing in ms;
    tenant, job_class, device_us: who is billed for which share of the device's time."""

    id: str
    output: bytes | None
    error: tuple[str, str] | None
    units: int
    timing: dict[str, Any]
    tenant: str = ""
    job_class: JobClass = "standard"
    device_us: int = 0


@dataclass(frozen=True, slots=True)
class CallUsage:
    """What the calls of one tenant and class used in one minute (since 1970) of the lanes' clock:
    those that were answered, each once."""

    minute: int
    tenant: str
    job_class: str
    succeeded: int = 0
    failed: int = 0
    units: int = 0
    device_us: int = 0


def pack_call(call: Call) -> bytes:
    """A release that knows less of calls reads one that isn't traced: it has nothing more."""
    packed = [call.tenant, call.input, call.size, call.weight, call.job_class]
    return orjson.dumps([*packed, call.trace] if call.trace else packed)


def unpack_call(id: str, head: bytes, packed: bytes) -> Call:
    """head: "enqueued deadline reply_to lane", which the lanes keep beside the rest."""
    tenant, value, size, weight, job_class, *more = orjson.loads(packed)
    enqueued, deadline, reply_to, lane = head.decode().split(" ", 3)
    times = float(enqueued), float(deadline)
    return Call(
        id, lane, tenant, value, size, reply_to, weight, job_class, *times, more[0] if more else ""
    )


def pack_replies(replies: list[Reply]) -> bytes:
    """One message for all the replies that a launch owes one api process."""
    return orjson.dumps(
        [[r.id, orjson.Fragment(r.output or b"null"), r.error, r.units, r.timing] for r in replies]
    )


def unpack_replies(packed: bytes) -> list[tuple[str, Any, list[str] | None, int, dict[str, Any]]]:
    """(id, output, error, units, timing) of each."""
    return [tuple(reply) for reply in orjson.loads(packed)]
