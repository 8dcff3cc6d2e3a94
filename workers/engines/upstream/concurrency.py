"""Adaptive limit of concurrent requests: additive increase, multiplicative decrease (Chiu and Jain
1989).

It grows by one for each answer until it is first too much, then by one for each round. It is too
much where the upstream refuses or times out, and where answers take twice as long as usual: then
only a queue grows.
"""

from statistics import median

CUT = 0.8  # factor of a decrease
TOLERANCE = 2.0  # median latency of a round over the usual one that shows a queue
_DOUBT = 1.5  # the same ratio from which a round doesn't change the usual latency
_BELIEVED = 12  # such rounds in a row, with ever fewer requests: the upstream is slower now
_FALL, _RISE = 0.3, 0.01  # weight of a faster and of a slower round in the usual latency
_LEAST_SAMPLES = 16  # answers of a round


class Limit:
    """Limit between least and most. Times are seconds on any one clock."""

    def __init__(self, least: int, start: int, most: int) -> None:
        self._least, self._most = least, most
        self._value = float(start)
        self._starting = True
        self._cut_s = float("-inf")
        self._round: list[float] = []
        self._samples = max(_LEAST_SAMPLES, start)
        self._usual_s: float | None = None
        self._queues = 0  # rounds in a row that show a queue

    @property
    def now(self) -> int:
        """Requests that may be in flight now."""
        return int(self._value)

    def answered(self, now_s: float, began_s: float, in_flight: int) -> None:
        """Records a served request; `in_flight` counts those when it began, itself included."""
        if began_s <= self._cut_s:
            return  # it says nothing about the lower limit
        self._round.append(now_s - began_s)
        if 2 * in_flight > self._value:  # else nothing shows that more are possible
            more = 1.0 if self._starting else 1.0 / self._value
            self._value = min(self._most, self._value + more)
        if len(self._round) >= self._samples:
            self._end_round(now_s)

    def refused(self, now_s: float, began_s: float) -> None:
        """Records a request that was too much; of those in flight together one counts."""
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
