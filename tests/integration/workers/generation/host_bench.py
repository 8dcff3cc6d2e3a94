"""A generation host with calls from a real Redis and items of slices made by hand."""

import mmap
import threading
from collections import Counter
from collections.abc import Collection, Sequence
from math import inf
from typing import Any

import orjson
import redis

from jobs import ids
from jobs.calls.keys import reply_key
from jobs.calls.lanes import Terms, lane_name
from jobs.calls.messages import DELTAS, Call, Delta, unpack_deltas, unpack_replies
from jobs.calls.redis import RedisLanes
from jobs.models.model import Model
from jobs.store.queue.claim import Lease
from tests.support.clients import chat
from tests.support.wait import eventually
from workers.device.call_puller import CallPuller
from workers.device.monitoring.rollout_records import RecordStreams
from workers.device.monitoring.watchdog import SIZE, LaunchDeadline, Watch
from workers.engines.echo_chat import EchoChat
from workers.engines.generator import GeneratorDied, NewSequence, Step
from workers.generation.host import GenerationHost
from workers.items.in_flight import ClaimedBatch, InFlightSlice

MODEL = Model("talk", "1", "echo_chat")
HOUR_S = 3600.0


class Echo(EchoChat):
    """Counts steps, remembers what is added, and can be told to wait or to die."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.steps = self.restarts = 0
        self.added: list[NewSequence] = []
        self.go = threading.Event()  #: steps wait for it
        self.go.set()
        self.until: float = inf  #: tokens of a request at which `go` is cleared
        self.deaths = 0  #: steps to die in
        self.tokens: Counter[str] = Counter()  #: that it emitted, by request

    def add(self, sequence: NewSequence) -> None:
        self.added.append(sequence)
        super().add(sequence)

    def step(self, max_prefill_tokens: int, prefills: Sequence[str] = ()) -> Step:
        self.go.wait()
        self.steps += 1
        if self.deaths:
            self.deaths -= 1
            raise GeneratorDied("killed")
        step = super().step(max_prefill_tokens, prefills)
        for emitted in step.emitted:
            self.tokens[emitted.id.partition("/")[0]] += len(emitted.tokens)
        if max(self.tokens.values(), default=0) >= self.until:
            self.go.clear()
        return step

    def go_on(self) -> None:
        """Steps don't wait any more."""
        self.until = inf
        self.go.set()

    def restart(self) -> None:
        self.restarts += 1
        super().restart()

    @property
    def ids(self) -> list[str]:
        """Sequences that it has now."""
        return list(self._running)


class Bench:
    """A host with its engine, and what one api process was sent."""

    def __init__(
        self,
        client: "redis.Redis",
        model: Model = MODEL,
        worker: str = "worker-1",
        kind: type[Echo] = Echo,
        price: float = 1.0,
        **options: Any,
    ) -> None:
        self.engine = kind(**{"step_ms": 1.0, **options})
        self.lanes = RedisLanes(client, model.key)
        self.watch = Watch()
        deadline = LaunchDeadline(mmap.mmap(self.watch.fd, SIZE))
        puller = CallPuller(self.lanes, worker, HOUR_S, price=price)
        records = RecordStreams(client)
        self.host = GenerationHost(model, self.engine, puller, deadline, records=records)
        self.host.announce()
        self._client, self._started = client, False
        self.deltas: list[Delta] = []
        self.replies: dict[str, Any] = {}  #: (output, error, timing) by call
        self._sent: list[Call] = []

    def start(self) -> None:
        self._started = True
        self.host.start()

    def stop(self) -> None:
        """Stops the host; calls that still run are dropped, since a host ends what it has."""
        self.engine.go_on()
        for call in self._sent:
            self.lanes.drop(call)
        if self._started:
            self.host.stop()
        self.watch.close()

    def call(
        self, id: str, text: str, *, timeout_ms: int = 60_000, target_ms: int = 10_000,
        **fields: Any,
    ) -> Call:  # fmt: skip
        stream, tenant = fields.pop("stream", False), fields.pop("tenant", "tenant")
        cohort = fields.pop("cohort", "")
        value = fields if "prompt" in fields else chat(text, **fields)
        call = Call(id, lane_name({}, 0), tenant, value, 1, "api-1", stream=stream, cohort=cohort)
        bounds = {"target_ms": target_ms, "timeout_ms": timeout_ms, "most": 1000}
        assert self.lanes.put(call, **bounds, terms=Terms()) is None
        self._sent.append(call)
        return call

    def begun(self, *, deltas: int = 1) -> None:
        """Waits until the api process was sent so many deltas."""
        eventually(lambda: (self.read(), len(self.deltas) >= deltas)[1])

    def drained(self) -> None:
        """Reads all that the api process was sent."""
        while self.read():
            pass

    def halted(self) -> None:
        """Waits until the engine has emitted as many tokens as `until`, and stands still."""
        eventually(lambda: not self.engine.go.is_set())

    def taken(self, id: str) -> None:
        """Waits until the host has a call, which comes into one of its next steps."""
        eventually(lambda: id in self.host._calls.requests)  # noqa: SLF001

    def ended(self, ids: Collection[str]) -> None:
        """Waits until calls have their replies."""
        eventually(lambda: (self.read(), self.replies.keys() >= set(ids))[1])

    def read(self) -> bool:
        """Reads what the api process was sent; returns False if there is nothing."""
        messages: Any = self._client.lpop(reply_key("api-1"), 1000) or ()
        for message in messages:
            if message[:1] == DELTAS:
                self.deltas += unpack_deltas(message)
            else:
                for id, output, error, _, timing in unpack_replies(message):
                    self.replies[id] = output and orjson.loads(output), error, timing
        return bool(messages)

    def reply(self, id: str) -> tuple[Any, Any, Any]:
        """(output, error, timing) of a call, once it is there."""
        eventually(lambda: (self.read() and id in self.replies) or id in self.replies)
        found: tuple[Any, Any, Any] = self.replies[id]
        return found

    def left(self, id: str) -> None:
        """Waits until the host has forgotten a call, to which nobody is sent a reply."""
        eventually(lambda: id not in self.host._calls.requests)  # noqa: SLF001
        assert not self.read() or id not in self.replies

    def texts(self, id: str) -> list[str]:
        """Texts of a call's choices, once it has ended."""
        output, error, _ = self.reply(id)
        assert error is None
        return [choice["message"]["content"] for choice in output["choices"]]

    def slices(self, *jobs: Sequence[Any]) -> list[InFlightSlice]:
        """Slices of as many jobs, submitted. An input that is a text is a prompt."""
        leases = [Lease(ids.new(), 0, len(job), 1, "tenant", MODEL.key, "{}") for job in jobs]
        slices = list(ClaimedBatch(leases).slices)
        for in_flight, job in zip(slices, jobs, strict=True):
            in_flight.expect(len(job))
            asked = [chat(one) if isinstance(one, str) else one for one in job]
            self.host.submit([in_flight] * len(job), range(len(job)), asked, {})
        return slices
