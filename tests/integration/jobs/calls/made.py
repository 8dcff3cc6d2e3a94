"""One implementation of the call lanes, and what tests ask of it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import orjson

from jobs.calls.lanes import CallLanes, LanesState, Rejection, Terms, Ticket
from jobs.calls.messages import DELTAS, Call, Delta, Reply, unpack_deltas, unpack_replies
from jobs.calls.quotas import FREE as UNBOUND
from jobs.calls.quotas import Quota
from jobs.models.inputs.generation import TokenUsage
from tests.support.wait import eventually

MODEL = "model@1"
FREE = Terms()


def ticket(look: LanesState, **wanted: Any) -> Ticket:
    worker = wanted.get("worker", "worker-1")
    usual = {
        "lane": "{}/64",
        "rows": 100,
        "units": 0,
        "launched_before_ms": look.last_launch_ms,
        "took_ms": 100.0,
        "needs_ms": 0.0,
        "reason": "pace",
        "worker": worker,
        "slot": f"{worker}/0",
        "lease_ms": 60_000.0,
    }
    return Ticket(**{**usual, **wanted})


@dataclass
class Lanes:
    """One implementation, and the messages that one api process was sent."""

    lanes: CallLanes
    received: Callable[[str], list[bytes]]

    def __post_init__(self) -> None:
        self._made_ms = self.look().now_ms

    def age_ms(self) -> float:
        """Returns how long ago this was made, by the clock of the lanes."""
        return self.look().now_ms - self._made_ms

    def put(self, id: str, lane: str = "{}/64", **bounds: int) -> Call:
        call = Call(id, lane, "tenant", {"text": f"input {id}"}, 3, "api-1")
        assert self.refusal(call, **bounds) is None
        return call

    def refused(
        self, call: Call, terms: Terms = FREE, quota: Quota = UNBOUND, **bounds: int
    ) -> Rejection | None:
        asked = {"target_ms": 250, "timeout_ms": 60_000, "most": 100, **bounds}
        return self.lanes.put(call, **asked, terms=terms, quota=quota)

    def refusal(self, call: Call, **bounds: int) -> str | None:
        refused = self.refused(call, **bounds)
        return refused and refused.why

    def look(self) -> LanesState:
        return self.lanes.look("nobody/0")

    def try_take(self, look: LanesState | None = None, **wanted: Any) -> list[Call] | None:
        return self.lanes.take(ticket(look or self.look(), **wanted))

    def take(self, look: LanesState | None = None, **wanted: Any) -> list[Call]:
        taken = self.try_take(look, **wanted)
        assert taken is not None
        return taken

    def take_ids(self, **wanted: Any) -> list[str]:
        return [call.id for call in self.take(**wanted)]

    def answer(self, *ids: str) -> None:
        self.lanes.reply("api-1", [Reply(id, b'"done"', None, 3, {}) for id in ids])

    def answer_as(
        self,
        call: Call,
        *,
        failed: bool = False,
        device_us: int = 0,
        tokens: TokenUsage | None = None,
    ) -> None:
        """As a worker does, which knows whose call it is."""
        end: Any = (None, ("engine_error", "it broke")) if failed else (b'"done"', None)
        whose = call.tenant, call.job_class, device_us
        reply = Reply(call.id, *end, call.size, {}, *whose, tokens, call.adapter, call.billed)
        self.lanes.reply("api-1", [reply])

    def usage(self) -> dict[tuple[str, str], tuple[int, int, int, int]]:
        """By tenant and class, over all minutes: succeeded, failed, units, device_us."""
        sums: dict[tuple[str, str], Any] = {}
        for one in self.lanes.usage(unfinished=True):
            counts = one.succeeded, one.failed, one.units, one.device_us
            before = sums.get((one.tenant, one.job_class), (0, 0, 0, 0))
            sums[one.tenant, one.job_class] = tuple(map(sum, zip(before, counts, strict=True)))
        return sums

    def tokens(self) -> dict[str, tuple[int, int, int]]:
        """By tenant, over all minutes: input, cached and output tokens."""
        sums: dict[str, Any] = {}
        for one in self.lanes.usage(unfinished=True):
            counts = one.input_tokens, one.cached_tokens, one.output_tokens
            before = sums.get(one.tenant, (0, 0, 0))
            sums[one.tenant] = tuple(map(sum, zip(before, counts, strict=True)))
        return sums

    def answers(self) -> list[tuple[str, Any, list[str] | None]]:
        """(id, output, error) of all that one api process was sent."""
        return [
            (id, output and orjson.loads(output), error)
            for message in self.received("api-1")
            for id, output, error, _, _ in unpack_replies(message)
        ]

    def streamed(self, asker: str) -> list[list[Delta]]:
        """Deltas that one api process was sent, message by message."""
        messages = self.received(asker)
        return [unpack_deltas(message) for message in messages if message[:1] == DELTAS]

    def waiting(self) -> dict[str, int]:
        return {lane.lane: lane.rows for lane in self.look().lanes}

    def passed(self, moment_ms: float) -> None:
        eventually(lambda: self.look().now_ms > moment_ms)


def sized(lanes: Lanes, tenant: str, *sizes: int, lane: str = "{}/64") -> None:
    """Calls of a tenant, named after it, each due later than the one before."""
    for n, size in enumerate(sizes):
        call = Call(f"{tenant}{n}", lane, tenant, None, size, "api-1")
        assert lanes.refused(call, target_ms=1000 + n) is None


def enqueue(lanes: CallLanes, call: Call, **bounds: int) -> None:
    """Puts a call, which is let in."""
    asked = {"target_ms": 250, "timeout_ms": 60_000, "most": 10_000, **bounds}
    assert lanes.put(call, **asked, terms=FREE) is None


def take(lanes: CallLanes, **wanted: Any) -> list[Call]:
    return lanes.take(ticket(lanes.look("nobody/0"), **wanted)) or []
