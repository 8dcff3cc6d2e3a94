"""Whose device time it is while several tenants have more work than there is."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from datetime import datetime
from itertools import cycle, zip_longest

from jobs import clock
from ops.bench.fairness.tenants import Tenants
from ops.bench.harness.platform import say
from ops.bench.harness.scale import Scale
from ops.bench.load.ndjson_client import Stream

EQUAL = {f"equal-{n}": 1.0 for n in range(1, 8)}
WEIGHED = {"one": 1.0, "two": 2.0, "four": 4.0}
FIRST = "first"
"""Its job keeps the workers until all others are there; then it is cancelled."""

_ITEMS_PER_S = 6 * 1000  # of six processes that always launch full
# At most: one tenant has a large job, the next ones smaller ones.
_JOB_ITEMS = (1_000_000, 4_000, 1_000)
_SETTLE_S = 3.0
_EQUAL_S, _WEIGHED_S = 8.0, 60.0  # in 60 s the lightest should have 51 slices of a second
_SPARE = 1.3  # of what they should get through by the end of the window
_IN_HAND = 6 * 4 * 1000  # items that six workers take without having to choose
_LOOK_S = 0.2


@dataclass(frozen=True, slots=True)
class Window:
    """Device seconds by tenant, in a time when all of them had work."""

    device_s: Mapping[str, float]
    seconds: float


def equal(tenants: Tenants, effort: Scale) -> list[Window]:
    seconds = effort.seconds(_EQUAL_S)
    return [_window(tenants, EQUAL, effort, seconds) for _ in range(effort.rounds)]


def weighed(tenants: Tenants, effort: Scale) -> Window:
    """One long window: a slice is a second of device time, and one more or less is no error."""
    return _window(tenants, WEIGHED, effort, effort.seconds(_WEIGHED_S))


def _window(
    tenants: Tenants, weights: Mapping[str, float], effort: Scale, seconds: float
) -> Window:
    """Opens some seconds after the last of them came, and closes when one has nothing left that
    could be claimed. What is left is cancelled."""
    tenants.weigh(weights)
    settle_s = effort.seconds(_SETTLE_S)
    names = list(weights)
    with ExitStack() as stack:
        streams = {
            name: stack.enter_context(closing(tenants.stream(name))) for name in (FIRST, *names)
        }
        first = streams[FIRST].post("batchstring", map(str, range(_IN_HAND)))
        jobs = _post(streams, weights, settle_s + seconds)
        streams[FIRST].cancel(first)
        clock.sleep(settle_s)
        since = tenants.now()
        until = _until_one_is_dry(tenants, names, since, seconds)
        for name, job in jobs:
            streams[name].cancel(job)
        tenants.await_end([FIRST, *names])
    found = Window(tenants.device_s(names, since, until), (until - since).total_seconds())
    told = ", ".join(f"{name} {used:.1f}" for name, used in found.device_s.items())
    say(f"device seconds in {found.seconds:.1f} s of six processes: {told}")
    return found


def _post(
    streams: Mapping[str, Stream], weights: Mapping[str, float], seconds: float
) -> list[tuple[str, str]]:
    """Jobs of more items than each should have done by then: (tenant, job). In turn, so that nobody
    has the devices to itself for long."""
    a_weight = (_IN_HAND + _SPARE * _ITEMS_PER_S * seconds) / sum(weights.values())
    sizes = {
        name: _sizes(int(a_weight * weight), most)
        for (name, weight), most in zip(weights.items(), cycle(_JOB_ITEMS), strict=False)
    }
    return [
        (name, streams[name].post("batchstring", (f"{name} {n}" for n in range(size))))
        for turn in zip_longest(*sizes.values())
        for name, size in zip(sizes, turn, strict=True)
        if size
    ]


def _sizes(items: int, most: int) -> list[int]:
    return [min(most, items - start) for start in range(0, items, most)]


def _until_one_is_dry(
    tenants: Tenants, names: Sequence[str], since: datetime, seconds: float
) -> datetime:
    """The last time all of them were seen with slices that nobody had taken."""
    until = since
    while (until - since).total_seconds() < seconds:
        clock.sleep(_LOOK_S)
        now = tenants.now()
        if dry := set(names) - tenants.backlogged(names):
            say(f"{', '.join(sorted(dry))} ran out of work after {(now - since)}")
            break
        until = now
    return until
