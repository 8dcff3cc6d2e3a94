"""Device time of tenants that have more work than there is capacity."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from datetime import datetime
from itertools import cycle, zip_longest

from jobs import clock
from ops.bench.harness.platform import say
from ops.bench.harness.scale import Scale
from ops.bench.load.client import Client
from ops.bench.load.submissions import await_end
from ops.bench.load.tenants import Tenants

EQUAL = {f"equal-{n}": 1.0 for n in range(1, 8)}
WEIGHED = {"one": 1.0, "two": 2.0, "four": 4.0}
#: Its job keeps the workers busy until all others have posted; then it is cancelled.
FIRST = "first"

_ITEMS_PER_S = 6 * 1000  # of six processes that always launch full
# Largest jobs: one tenant has a large job, the next ones have smaller ones.
_JOB_ITEMS = (1_000_000, 4_000, 1_000)
_SETTLE_S = 3.0
EQUAL_S, WEIGHED_S = 8.0, 60.0  # in 60 s the lightest should have 51 slices of a second
_SPARE = 1.3  # factor of the items that are due by the end of the window
_IN_FLIGHT = 6 * 4 * 1000  # items that six workers claim without having to choose
_POLL_S = 0.2


@dataclass(frozen=True, slots=True)
class Window:
    """Time in which all tenants had work."""

    device_s: Mapping[str, float]  #: by tenant
    seconds: float


def measure(tenants: Tenants, weights: Mapping[str, float], scale: Scale, full_s: float) -> Window:
    """Measures a window of full_s, or until a tenant has nothing left to claim.

    It opens some seconds after the last job was posted; jobs are cancelled at its end.
    """
    tenants.weigh(weights)
    settle_s, seconds = scale.seconds(_SETTLE_S), scale.seconds(full_s)
    names = list(weights)
    with ExitStack() as stack:
        clients = {
            name: stack.enter_context(closing(tenants.client(name))) for name in (FIRST, *names)
        }
        first = clients[FIRST].post("batchstring", map(str, range(_IN_FLIGHT)))
        jobs = _post(clients, weights, settle_s + seconds)
        clients[FIRST].cancel(first)
        clock.sleep(settle_s)
        since = tenants.now()
        until = _until_one_is_dry(tenants, names, since, seconds)
        for name, job in jobs:
            clients[name].cancel(job)
        await_end(tenants.database, [FIRST, *names])
    window = Window(tenants.device_s(names, since, until), (until - since).total_seconds())
    used = ", ".join(f"{name} {used:.1f}" for name, used in window.device_s.items())
    say(f"device seconds in {window.seconds:.1f} s of six processes: {used}")
    return window


def _post(
    clients: Mapping[str, Client], weights: Mapping[str, float], seconds: float
) -> list[tuple[str, str]]:
    """Posts more items than each tenant should process by then; returns (tenant, job).

    The tenants take turns, so that none has the devices to itself for long.
    """
    a_weight = (_IN_FLIGHT + _SPARE * _ITEMS_PER_S * seconds) / sum(weights.values())
    sizes = {
        name: [min(most, items - start) for start in range(0, items, most)]
        for (name, weight), most in zip(weights.items(), cycle(_JOB_ITEMS), strict=False)
        for items in [int(a_weight * weight)]
    }
    return [
        (name, clients[name].post("batchstring", (f"{name} {n}" for n in range(size))))
        for turn in zip_longest(*sizes.values())
        for name, size in zip(sizes, turn, strict=True)
        if size
    ]


def _until_one_is_dry(
    tenants: Tenants, names: Sequence[str], since: datetime, seconds: float
) -> datetime:
    """Last time when all tenants had slices that were not claimed."""
    until = since
    while (until - since).total_seconds() < seconds:
        clock.sleep(_POLL_S)
        now = tenants.now()
        if dry := set(names) - tenants.backlogged(names):
            say(f"{', '.join(sorted(dry))} ran out of work after {(now - since)}")
            break
        until = now
    return until
