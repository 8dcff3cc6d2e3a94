"""How many requests an upstream bears at a time, found out by asking for more: additive increase,
multiplicative decrease (Chiu and Jain 1989).

It grows by one for each that is answered until it is first too much, and from then on by one for
each round. It is too much where the upstream refuses or is silent for too long, and where answers
take twice as long as they did: a queue is then all that grows.
"""

from statistics import median

CUT = 0.8
TOLERANCE = 2.0
"""Times the usual latency, in the median of a round, that show a queue: more than chance makes of
it."""
_DOUBT = 1.5
"""Times the usual one, from which it may be a queue: such a round is no news of what is usual."""
_BELIEVED = 12
"""Such rounds in a row, each with fewer at a time: it is not a queue of ours."""
_FALL, _RISE = 0.3, 0.01
"""Of the way from the usual to what a round took, where it was less, and where it was more."""

_LEAST_SAMPLES = 16


class Limit:
    """Between least and most. Times are seconds on any one clock."""

    def __init__(self, least: int, start: int, most: int) -> None:
        self._least, self._most = least, most
        self._value = float(start)
        self._starting = True
        self._cut_s = float("-inf")
        self._round: list[float] = []
        self._samples = max(_LEAST_SAMPLES, start)
        self._usual_s: float | None = None
        self._queues = 0  # rounds in a row that show one

    @property
    def now(self) -> int:
        return int(self._value)

    def answered(self, now_s: float, began_s: float, beside: int) -> None:
        """A request was served. beside: those in flight when it began, itself included."""
        if began_s <= self._cut_s:
            return  # it tells of the time before
        self._round.append(now_s - began_s)
        if 2 * beside > self._value:  # else nothing shows that it bears more
            more = 1.0 if self._starting else 1.0 / self._value
            self._value = min(self._most, self._value + more)
        if len(self._round) >= self._samples:
            self._end_round(now_s)

    def refused(self, now_s: float, began_s: float) -> None:
        """A request was one too many. Of those that were on their way together, one counts."""
        if began_s > self._cut_s:
            self._cut(now_s)

    def _end_round(self, now_s: float) -> None:
        took_s = median(self._round)
        self._begin_round()
        usual_s = took_s if self._usual_s is None else self._usual_s
        self._queues = self._queues + 1 if took_s > TOLERANCE * usual_s else 0
        if self._queues == _BELIEVED:
            self._usual_s, self._queues, self._starting = took_s, 0, True
        elif self._queues:
            self._cut(now_s)
        elif took_s <= _DOUBT * usual_s:
            share = _FALL if took_s < usual_s else _RISE
            self._usual_s = usual_s + share * (took_s - usual_s)

    def _cut(self, now_s: float) -> None:
        self._value = max(self._least, CUT * self._value)
        self._starting, self._cut_s = False, now_s
        self._begin_round()

    def _begin_round(self) -> None:
        self._round.clear()
        self._samples = max(_LEAST_SAMPLES, self.now)
