"""Arguments and replies of the scripts by which an api process takes over a call, cancels one, and
tells that it lives. The api runs them on a connection of its own."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from jobs.calls.keys import Keys
from jobs.calls.lanes import API_ALIVE_S
from jobs.calls.messages import (
    DELTAS,
    Call,
    Delta,
    UnpackedReply,
    unpack_call,
    unpack_deltas,
    unpack_replies,
)
from jobs.calls.redis import CANCELLED_TTL_S, REPLY_TTL_S
from jobs.errors import CallCancelled, MillraceError, StreamMoved

_FORGET_S = 3600.0  # after which nothing is known of one that died: its calls have ended

_CANCELLED = "POST /calls/{call_id}/cancel ended the call"
_MOVED = "a newer connection reads this stream; it goes on there"


@dataclass(frozen=True, slots=True)
class Attached:
    """Call that an api process has taken over, with all that it has emitted so far."""

    call: Call | None  #: None: it has ended
    left_s: float  #: until its deadline
    deltas: Sequence[Delta]  #: from number 0
    end: UnpackedReply | None  #: of a call that has ended


def attach_arguments(keys: Keys, id: str, tenant: str, reply_to: str) -> list[Any]:
    """Returns the arguments of ATTACH."""
    replies = keys.replies(""), REPLY_TTL_S
    return [id, tenant, keys.log(id), reply_to, *replies, StreamMoved.code, _MOVED]


def read_attached(id: str, reply: Any) -> Attached | None:
    """Reads the reply of ATTACH; None: the tenant has no such stream, or no more."""
    if not reply:
        return None
    now_ms, packed, entries = float(reply[0]), reply[1], reply[2]
    call, left_s = None, 0.0
    if packed:
        head, _, value = packed.split(b"\n", 2)
        call = unpack_call(id, head, value)
        left_s = (call.deadline_ms - now_ms) / 1000
    deltas, end = read_entries(entries)
    return Attached(call, left_s, deltas, end) if call or end else None


def read_entries(entries: Sequence[bytes]) -> tuple[Sequence[Delta], UnpackedReply | None]:
    """Reads the entries of a log: deltas, and the reply that ended them."""
    has_end = bool(entries) and not entries[-1].startswith(DELTAS)
    deltas = [unpack_deltas(entry)[0] for entry in entries[: len(entries) - has_end]]
    return deltas, unpack_replies(entries[-1])[0] if has_end else None


def cancel_arguments(keys: Keys, id: str, tenant: str) -> list[Any]:
    """Returns the arguments of CANCEL."""
    dropped = [keys.lane(""), id, keys.cancelled(""), CANCELLED_TTL_S, tenant]
    return [*dropped, keys.replies(""), REPLY_TTL_S, CallCancelled.code, _CANCELLED]


def attend_arguments(reply_to: str, ids: Sequence[str]) -> list[Any]:
    """Returns the arguments of ATTEND. ids: calls that the api process waits for."""
    return [reply_to, round(API_ALIVE_S * 1000), round(_FORGET_S * 1000), *ids]


def moved() -> MillraceError:
    """Returns the error of a stream that a newer connection reads."""
    return StreamMoved(_MOVED)
