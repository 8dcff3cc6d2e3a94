"""Ids of server-sent events, by which a client that lost a stream gets the rest of it.

`call_…/17` names the last event of delta 17, `call_…/17.2` the second of its events where more
follow. What comes before the first delta belongs to delta 0, the end of a stream to the delta that
would be next.
"""

import re
from dataclasses import dataclass
from math import inf

from jobs import ids
from jobs.errors import Malformed

HEADER = "Last-Event-ID"
PATTERN = rf"^call_{ids.DIGITS}(/\d{{1,9}}(\.\d{{1,6}})?)?$"
_ID = re.compile(PATTERN)
_END = b"\n\n"  # of an event


@dataclass(frozen=True, slots=True)
class Position:
    """Place in a stream: all up to it has been received."""

    call_id: str
    number: int = -1  #: of a delta; -1: nothing of it was received
    events: float = inf  #: of that delta; inf: all

    @classmethod
    def parse(cls, text: str) -> "Position":
        """Reads the id of an event. Raises Malformed."""
        if not _ID.fullmatch(text):
            example = "call_01kajf7q5rf0h8zq2m4w6y8a0b/17"
            raise Malformed(f"{HEADER} is no id of an event of a stream, such as {example}")
        call_id, _, place = text.partition("/")
        number, _, events = place.partition(".")
        return cls(call_id, int(number or -1), int(events) if events else inf)


class EventIds:
    """Adds ids to the events of a stream, and leaves out those that its client has had."""

    def __init__(self, after: Position, *, shown: bool = True) -> None:
        """after: the last event that the client has had. shown: False for a client that doesn't
        come back: the events of a new stream are left as they are."""
        self.after, self._shown = after, shown
        self._call_id = after.call_id.encode()
        self._number, self._count = 0, 0  # delta of the latest event, and its events so far
        self._latest = self._call_id

    def write(self, number: int, events: bytes, *, whole: bool = True) -> bytes:
        """Returns events of a delta with their ids. whole: no more of this delta follow."""
        if not self._shown:
            return events
        if number != self._number:
            self._number, self._count = number, 0
        pieces, rest = [], events.split(_END)[:-1]
        for left, event in zip(reversed(range(len(rest))), rest, strict=True):
            self._count += 1
            last = whole and not left
            place = b"" if last else b".%d" % self._count
            self._latest = b"%b/%d%b" % (self._call_id, number, place)
            if (number, inf if last else self._count) > (self.after.number, self.after.events):
                pieces.append(b"%b\nid: %b\n\n" % (event, self._latest))
        return b"".join(pieces)

    def repeat(self, events: bytes) -> bytes:
        """Returns events that are no part of the call, with the id of the latest one before."""
        if not self._shown:
            return events
        return b"".join(b"%b\nid: %b\n\n" % (one, self._latest) for one in events.split(_END)[:-1])
