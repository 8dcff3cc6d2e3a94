"""Api side of a simulation: calls arrive, are admitted or rejected, and are answered or expire."""

from collections.abc import Callable, Sequence

from jobs.calls.admission import Margin, due_ms, mixed_terms
from jobs.calls.lanes import Terms, bucket_of, lane_name
from jobs.calls.memory import MemoryLanes
from jobs.calls.messages import Call, Reply
from jobs.calls.profile import Profile
from jobs.models.model import Model
from jobs.rollouts.cohorts import own_lanes
from workers.scheduler.entries import FlushReason, Launch
from workers.simulation.costs import Overheads
from workers.simulation.event_loop import BEGINS_S, EventLoop
from workers.simulation.result import CallEnd, Outcome

_API = "api"

Arrival = tuple[float, int] | tuple[float, int, str]
"""Seconds since the beginning, size, and tenant."""


class Gateway:
    """Puts each arrival into its lane; on_call wakes slots."""

    def __init__(
        self,
        model: Model,
        loop: EventLoop,
        lanes: MemoryLanes,
        arrivals: Sequence[Arrival],
        overheads: Overheads,
        timeout_ms: int,
        most_waiting: int,
        on_call: Callable[[], None],
    ) -> None:
        self.ended: list[CallEnd] = []
        self._model, self._loop, self._lanes = model, loop, lanes
        self._arrivals, self._on_call = arrivals, on_call
        self._one_way_s = overheads.call_s / 2
        self._timeout_ms, self._most_waiting = timeout_ms, most_waiting
        self._open: dict[str, tuple[float, Call]] = {}  # by id, with the time of arrival
        self._profiles, self._packed = [Profile()], list[bytes]()
        self._margin = Margin(model)

    @property
    def over(self) -> bool:
        """True once every call has ended."""
        return len(self.ended) == len(self._arrivals)

    def start(self) -> None:
        """Schedules the first arrival."""
        self._expect(0)

    def take(self, number: int, size: int, tenant: str = "", cohort: str = "") -> None:
        """Takes a call that arrives now. number: of this call alone; cohort: see Call."""
        lane = lane_name({}, bucket_of(size, self._model.buckets), own_lanes(cohort))
        call = Call(str(number), lane, tenant, None, size, _API, cohort=cohort)
        self._open[call.id] = self._loop.now_s, call
        self._loop.after(self._timeout_ms / 1000, self._expire, call)
        self._loop.after(self._one_way_s, self._put, call)

    def answer(self, launch: Launch) -> None:
        """Answers the calls of a launch that has ended, in one message."""
        if not launch.calls:
            return
        calls = [entry.owner for entry in launch.calls]
        self._lanes.reply(_API, [Reply(call.id, b"", None, call.size, {}) for call in calls])
        self._lanes.replies.clear()  # as the api process does by reading them
        for call in calls:
            launched_s = launch.started_s - BEGINS_S
            self._loop.after(
                self._one_way_s, self._end, call.id, "answered", launched_s, launch.reason
            )

    def _expect(self, n: int) -> None:
        if n < len(self._arrivals):
            self._loop.at(BEGINS_S + self._arrivals[n][0], self._arrive, n)

    def _arrive(self, n: int) -> None:
        _, size, *tenant = self._arrivals[n]
        self.take(n, size, "".join(tenant))
        self._expect(n + 1)

    def _put(self, call: Call) -> None:
        refused = self._lanes.put(
            call,
            target_ms=self._model.target_ms,
            timeout_ms=self._timeout_ms,
            most=self._most_waiting,
            terms=self._terms_of(bucket_of(call.size, self._model.size_buckets)),
        )
        if refused is None:
            self._on_call()
        else:
            self._loop.after(self._one_way_s, self._end, call.id, refused.why)

    def _terms_of(self, bucket: int) -> Terms:
        packed = self._lanes.profiles()
        if packed != self._packed:
            self._profiles, self._packed = [Profile.unpack(one) for one in packed], packed
        margin_ms = self._margin.ms
        times = self._timeout_ms, 1.0, margin_ms
        return mixed_terms(self._profiles, self._model, bucket, *times)

    def _expire(self, call: Call) -> None:
        if call.id in self._open:
            self._lanes.drop(call)
            self._end(call.id, "expired")

    def _end(
        self, id: str, outcome: Outcome, launched_s: float = 0.0, reason: FlushReason | None = None
    ) -> None:
        """Records the first end of a call."""
        if opened := self._open.pop(id, None):
            arrived_s, call = opened
            if outcome == "answered":
                bucket = bucket_of(call.size, self._model.size_buckets)
                due = due_ms(self._profiles[0], self._model, bucket, self._timeout_ms)
                took_ms = (self._loop.now_s - arrived_s) * 1000
                self._margin.record(late=took_ms > due)
            times = arrived_s - BEGINS_S, launched_s, self._loop.now_s - BEGINS_S
            self.ended.append(CallEnd(*times, call.size, outcome, reason, call.tenant))
