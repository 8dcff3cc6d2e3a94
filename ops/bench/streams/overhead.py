"""Cost of the log: a generation host on a real Redis, with the log and with deltas only sent."""

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import redis

from jobs import clock, ids
from jobs.calls import redis as call_redis
from jobs.calls.keys import reply_key
from jobs.calls.lanes import Terms, lane_name
from jobs.calls.messages import DELTAS, Call, pack_deltas, unpack_deltas, unpack_replies
from jobs.calls.redis import REPLY_TTL_S, RedisLanes
from jobs.calls.streams.log import Progress
from jobs.models.model import Model
from jobs.settings import Settings
from ops.bench.harness.errors import BenchError
from ops.bench.harness.platform import say
from ops.bench.harness.scale import Scale
from ops.bench.load.streams.reader import StreamRequest
from ops.bench.results.report import Report
from ops.bench.streams.requests import requests
from ops.bench.streams.target import PLACES, tiny_model
from ops.embedded import defaults
from ops.embedded.servers import EmbeddedServers
from workers.device.call_puller import CallPuller
from workers.engines import registry
from workers.engines.generator import Generator, Step
from workers.generation.host import GenerationHost

ASKED = ("rate_with_log_vs_without >= 0.97", "appends_per_step <= 1")
_STREAMS, _TOKENS, _ROUNDS = 64, 200, 5
_API, _LEASE_S, _TIMEOUT_MS = "bench", 3600.0, 600_000


class CountedLanes(RedisLanes):
    """Counts scripts that append."""

    def __init__(self, client: "redis.Redis", model: str) -> None:
        super().__init__(client, model)
        self.client, self.appends = client, 0

    def stream(self, progress: Sequence[Progress]) -> Any:
        """Implements `CallLanes.stream`."""
        self.appends += bool(progress)
        return super().stream(progress)


class UnloggedLanes(CountedLanes):
    """Only sends deltas, one message to each api process, as before there was a log."""

    def stream(self, progress: Sequence[Progress]) -> Any:
        """Implements `CallLanes.stream`."""
        with self.client.pipeline(transaction=False) as pipe:
            for asker, its in groupby(progress, lambda one: one.call.reply_to):
                pipe.rpush(self.keys.replies(asker), pack_deltas([one.delta for one in its]))
                pipe.expire(self.keys.replies(asker), REPLY_TTL_S)
            pipe.execute()
        return []


@dataclass
class _Run:
    """One run of a host: its rate, and how often it appended."""

    tokens: int = 0
    seconds: float = 0.0
    steps: int = 0  #: in which tokens were emitted
    appends: int = 0

    @property
    def per_s(self) -> float:
        """Tokens a second."""
        return self.tokens / self.seconds


def measure(report: Report, scale: Scale) -> None:
    """Measures both in turn, on one engine."""
    asked = requests(_STREAMS, int(scale.seconds(_TOKENS)))
    rounds = 1 if scale.quick else _ROUNDS
    with tempfile.TemporaryDirectory(prefix="millrace-bench-") as folder:
        (Path(folder) / "model").mkdir()
        model = tiny_model(Path(folder) / "model")
        with _redis(Path(folder) / "home") as client, _engine(model) as engine:
            _run(CountedLanes(client, model.key), model, engine, asked)
            ratios, appends = list[float](), list[float]()
            for _ in range(rounds):
                logged = _run(CountedLanes(client, model.key), model, engine, asked)
                unlogged = _run(UnloggedLanes(client, model.key), model, engine, asked)
                say(f"{logged.per_s:.0f} tokens/s with the log, {unlogged.per_s:.0f} without")
                ratios.append(logged.per_s / unlogged.per_s)
                appends.append(logged.appends / logged.steps)
    report.spread(rate_with_log_vs_without=ratios)
    report.add(appends_per_step=max(appends))


@contextmanager
def _redis(home: Path) -> Iterator["redis.Redis"]:
    servers = EmbeddedServers(home, postgres=False)
    servers.start()
    try:
        url = defaults.fill_in(Settings(home=home)).redis_url
        with call_redis.connect(url) as client:
            yield client
    finally:
        servers.stop()


@contextmanager
def _engine(model: Model) -> Iterator[Generator]:
    engine = registry.load(model, "cpu")
    assert isinstance(engine, Generator)
    try:
        yield engine
    finally:
        engine.close()


class _CountedSteps:
    """Generator whose steps with tokens are counted."""

    def __init__(self, engine: Generator) -> None:
        self._engine, self.count = engine, 0

    def step(self, max_prefill_tokens: int, prefills: Sequence[str] = ()) -> Step:
        """Implements `Generator.step`."""
        step = self._engine.step(max_prefill_tokens, prefills)
        self.count += bool(step.emitted)
        return step

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)


def _run(
    lanes: CountedLanes, model: Model, engine: Generator, asked: Sequence[StreamRequest]
) -> _Run:
    counted: Any = _CountedSteps(engine)
    host = GenerationHost(model, counted, CallPuller(lanes, str(ids.new()), _LEASE_S))
    host.announce()
    calls = [_put(lanes, one.body["input"]) for one in asked]
    host.start()
    try:
        tokens, seconds = _await({call.id for call in calls}, lanes.client)
    finally:
        host.announce(ready=False, alive=False)
        host.stop()
    return _Run(tokens, seconds, counted.count, lanes.appends)


def _put(lanes: RedisLanes, value: Mapping[str, Any]) -> Call:
    lane = lane_name({}, 0)
    call = Call(ids.new_shown("call"), lane, "bench", value, 1, _API, stream=True)
    bounds: dict[str, Any] = dict.fromkeys(("target_ms", "timeout_ms"), _TIMEOUT_MS)
    if rejected := lanes.put(call, **bounds, most=PLACES, terms=Terms()):
        raise BenchError(f"a call was rejected: {rejected.why}")
    return call


def _await(open_calls: set[str], client: "redis.Redis") -> tuple[int, float]:
    """Reads what an api process would get, until all calls have ended; returns their tokens and the
    time from the first one on."""
    tokens, first_s = 0, 0.0
    until_s = clock.monotonic() + _TIMEOUT_MS / 1000
    while open_calls and clock.monotonic() < until_s:
        popped: Any = client.blpop([reply_key(_API)], timeout=1)
        if not popped:
            continue
        first_s = first_s or clock.monotonic()
        if popped[1].startswith(DELTAS):
            deltas = unpack_deltas(popped[1])
            tokens += sum(len(choice.tokens) for one in deltas for choice in one.choices)
        else:
            open_calls -= {reply[0] for reply in unpack_replies(popped[1])}
    if open_calls:
        raise BenchError(f"{len(open_calls)} calls did not end")
    return tokens, clock.monotonic() - first_s
