"""Streams while workers and apis are killed, stopped, drained: each goes on, and says what it would
have said."""

import asyncio
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import httpx

from jobs import clock
from ops.bench.chaos.fleet import Fleet
from ops.bench.harness.errors import BenchError
from ops.bench.harness.platform import say
from ops.bench.harness.scale import Scale
from ops.bench.load.streams.reader import Expected, ReadStream, StreamRequest, read, read_all
from ops.bench.results.report import Report
from ops.bench.streams.injection import Injection
from ops.bench.streams.requests import NAMES, SCHEMA, is_valid, requests
from ops.bench.streams.target import NAME, streaming_fleet

NOTHING_LOST = (
    "tokens_lost <= 0",
    "tokens_repeated <= 0",
    "tokens_changed <= 0",
    "broken_streams <= 0",
    "equal_share >= 1",
    "valid_json_share >= 1",
)
ASKED = (*NOTHING_LOST, "kills >= 60", "gap_p95_ms <= 3000")
_STREAMS, _TOKENS = 200, 400
_END_WITHIN_S = 600.0


@dataclass(frozen=True, slots=True)
class Fault:
    """Rounds of one fault."""

    name: str
    inject: Callable[[Injection], None]
    count: int  #: at full scale
    every_s: float  #: between two


_FAULTS = (
    Fault("kill", Injection.kill, 60, 3.0),
    Fault("zombie", Injection.stop, 4, 12.0),
    Fault("child_crash", Injection.crash_child, 6, 3.0),
    Fault("drain", Injection.drain, 6, 3.0),
    Fault("api_kill", Injection.kill_api, 8, 4.0),
    Fault("api_stop", Injection.stop_api, 4, 8.0),
)


@dataclass(slots=True)
class Tally:
    """Sums over the streams of one fault."""

    streams: int = 0
    lost: int = 0  #: tokens
    repeated: int = 0  #: tokens
    changed: int = 0  #: tokens
    broken: int = 0  #: streams that ended in an error
    equal: int = 0  #: streams with the text of the undisturbed one
    bound: int = 0  #: streams that follow a schema
    valid: int = 0  #: of those, texts that are JSON of it

    def add(self, stream: ReadStream, expected: Expected, text: dict[int, str]) -> None:
        """Adds one stream."""
        self.streams += 1
        self.lost += stream.missing(expected)
        self.repeated += stream.repeated
        self.changed += stream.changed(expected)
        self.broken += not stream.ended
        self.equal += stream.ended and stream.text == text
        if stream.request.kind == SCHEMA:
            self.bound += 1
            self.valid += is_valid(stream.request, stream.text.get(0, ""))


def measure(report: Report, scale: Scale) -> None:
    """Measures all faults on one fleet, one after the other."""
    with streaming_fleet() as fleet:
        measure_faults(report, scale, fleet, _FAULTS)


def measure_faults(
    report: Report,
    scale: Scale,
    fleet: Fleet,
    faults: Sequence[Fault],
    workers: int = 2,
    prefix: str = "",
) -> None:
    """Measures faults on a fleet, one after the other. workers: how many are ready for calls
    before each fault; prefix: of the figures' names."""
    asked = requests(int(scale.seconds(_STREAMS)), int(scale.seconds(_TOKENS)), NAMES)
    calm = _undisturbed(fleet, asked)
    sums, counts = Tally(), dict[str, int]()
    for fault in faults:
        count = fault.count if not scale.quick else max(2, fault.count // 12)
        injection = Injection(fleet, f"{NAME}@1", workers)
        streams = _run(injection, asked, fault, count)
        tally = _tally(streams, calm)
        say(f"{fault.name}: {tally}")
        for name in Tally.__slots__:
            setattr(sums, name, getattr(sums, name) + getattr(tally, name))
        _gaps(report, prefix, fault.name, streams, injection)
        counts[f"{fault.name}s"] = count
    report.add(
        prefix,
        **counts,
        streams=sums.streams,
        tokens_lost=sums.lost,
        tokens_repeated=sums.repeated,
        tokens_changed=sums.changed,
        broken_streams=sums.broken,
        equal_share=sums.equal / sums.streams,
        valid_json_share=sums.valid / sums.bound,
    )


def _undisturbed(fleet: Fleet, asked: Sequence[StreamRequest]) -> Sequence[ReadStream]:
    since_s = clock.monotonic()
    streams = asyncio.run(read_all(fleet.urls, asked))
    for stream in streams:
        if not stream.ended:
            raise BenchError(f"an undisturbed stream ended with {stream.error}")
    tokens = sum(len(its) for one in streams for its in one.tokens.values())
    say(f"undisturbed: {tokens / (clock.monotonic() - since_s):.0f} tokens/s")
    return streams


def _run(
    injection: Injection, asked: Sequence[StreamRequest], fault: Fault, count: int
) -> list[ReadStream]:
    """Keeps all streams going, each again once it has ended, until the last fault is over."""
    over, found, urls = threading.Event(), list[ReadStream](), injection.fleet.urls

    async def keep_going(http: httpx.AsyncClient, number: int) -> None:
        """Reads one stream again and again."""
        while not over.is_set():
            turn = urls[number % len(urls) :] + urls[: number % len(urls)]
            found.append(await read(http, turn, asked[number]))

    async def work() -> None:
        """Keeps all going."""
        limits = httpx.Limits(max_connections=None)
        async with httpx.AsyncClient(timeout=600.0, limits=limits) as http:
            await asyncio.gather(*(keep_going(http, n) for n in range(len(asked))))

    thread = threading.Thread(target=asyncio.run, args=(work(),))
    thread.start()
    try:
        injection.sleep(2.0)
        for _ in range(count):
            fault.inject(injection)
            injection.sleep(fault.every_s)
    finally:
        over.set()
        injection.wait(lambda: not thread.is_alive(), "all streams have ended", _END_WITHIN_S)
    return found


def _tally(streams: Sequence[ReadStream], calm: Sequence[ReadStream]) -> Tally:
    wanted = {id(one.request): one for one in calm}
    tally = Tally()
    for stream in streams:
        its = wanted[id(stream.request)]
        tally.add(stream, its.tokens, its.text)
        if not stream.ended:
            say(f"a stream ended with {stream.error}")
    return tally


def _gaps(
    report: Report, prefix: str, fault: str, streams: Sequence[ReadStream], injection: Injection
) -> None:
    hit = [one for one in streams if one.call_id in injection.hit or one.connections > 1]
    if gaps := [one.longest_gap_ms for one in hit]:
        its = prefix if fault == "kill" else f"{prefix}{fault}_"
        report.percentiles(its + "gap_{}_ms", gaps, 50, 95)
        report.add(f"{prefix}{fault}_", streams_hit=len(gaps))
