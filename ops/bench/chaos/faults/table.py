"""Table of faults, and their schedule: a function of the seed."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from random import Random
from signal import SIGKILL, SIGSTOP, SIGTERM

from ops.bench.chaos.faults import disk, failover, faults, floods, network, rolling
from ops.bench.chaos.faults.targets import Proof, Stage, Steps
from ops.bench.chaos.network.faulty_proxy import Fault as NetworkFault


@dataclass(frozen=True, slots=True)
class Fault:
    """Kind of fault."""

    share: int  #: number in a thousand faults
    name: str  #: on the page
    proof: str  #: in the ledger, on the page
    act: Callable[[Stage, Random], Steps[Proof]]


_LOGGED = "wait status, as its supervisor saw it"
_FROZEN = "state T in /proc, seconds stopped"
_RUN_ID = "wait status, run_id before and after"
_STARTED = "wait status, pg_postmaster_start_time before and after"
_PROMOTED = "wait status or state T, the timeline of the new primary"
_STOPPED = "state T in /proc, seconds stopped, its leases taken by other epochs"
_FULL = "bytes of the file that took the space, status of intake meanwhile"
_SEQS = "seqs read, of those that the stream was about to send"

_HIT = "the two processes, connections and pieces that were hit"
_LINKS: tuple[tuple[str, NetworkFault, str], ...] = (
    ("reset", "reset", "between two processes accepted and reset at once"),
    ("stalled", "stall", "between two processes stalled"),
    ("stalled_back", "stall_answers", "between two processes stalled in one direction"),
    ("delayed", "delay", "between two processes late by 0.1 s a piece"),
    ("half_closed", "half_close", "between two processes half closed"),
    ("cut", "cut", "between two processes cut in the middle of a piece"),
)

DISK_FULL = "disk_full"
"""Kind that needs a small file system for the home."""

FAULTS: Mapping[str, Fault] = {
    "worker_killed": Fault(
        100, "SIGKILL of a worker", _LOGGED, partial(faults.worker_ended, SIGKILL)
    ),
    "worker_stopped": Fault(
        *(100, "SIGSTOP of a worker past its lease, then SIGCONT (the zombie)", _STOPPED),
        faults.worker_stopped,
    ),
    "worker_terminated": Fault(
        100, "SIGTERM of a worker", _LOGGED, partial(faults.worker_ended, SIGTERM)
    ),
    "api_killed": Fault(
        100, "SIGKILL of an api", "wait status", partial(faults.child_killed, "apis")
    ),
    "keeper_killed": Fault(
        100, "SIGKILL of a keeper", "wait status", partial(faults.child_killed, "keepers")
    ),
    "postgres_stopped": Fault(
        100, "PostgreSQL stopped `immediate`, and started", _STARTED, faults.postgres_stopped
    ),
    "api_frozen": Fault(
        15, "SIGSTOP of an api, then SIGCONT", _FROZEN, partial(faults.child_frozen, "apis")
    ),
    "keeper_frozen": Fault(
        15, "SIGSTOP of a keeper, then SIGCONT", _FROZEN, partial(faults.child_frozen, "keepers")
    ),
    "postgres_frozen": Fault(
        *(15, "SIGSTOP of all processes of PostgreSQL, then SIGCONT", _FROZEN),
        faults.postgres_frozen,
    ),
    "primary_killed": Fault(
        *(10, "SIGKILL of PostgreSQL, a standby promoted", _PROMOTED),
        partial(failover.primary_lost, SIGKILL),
    ),
    "primary_frozen": Fault(
        *(10, "SIGSTOP of PostgreSQL for good, a standby promoted", _PROMOTED),
        partial(failover.primary_lost, SIGSTOP),
    ),
    "commits_late": Fault(
        *(10, "each commit 0.2 s late or more, as where fsync is", "median of the standby's lag"),
        failover.commits_late,
    ),
    "connections_full": Fault(
        *(10, "all connections of PostgreSQL taken", "how many, and the error of one more"),
        floods.connections_full,
    ),
    "call_burst": Fault(
        10, "a thousand calls to an api at once", "their statuses", floods.call_burst
    ),
    "redis_full": Fault(
        15, "Redis out of memory for seconds", "the error of a write", faults.redis_full
    ),
    DISK_FULL: Fault(34, "the disk of the home full for seconds", _FULL, disk.disk_full),
    "redis_killed": Fault(50, "Redis killed, an empty one started", _RUN_ID, faults.redis_killed),
    "redis_flushed": Fault(
        50, "Redis flushed", "keys before; a canary among them is gone", faults.redis_flushed
    ),
    "redis_failover": Fault(
        *(10, "the master of Redis killed, replaced by Sentinels", "wait status, both masters"),
        failover.redis_failover,
    ),
    "nudge_dropped": Fault(
        15, "a nudge dropped", "the id of the message that was taken", faults.nudge_dropped
    ),
    "nudge_doubled": Fault(
        15, "a nudge doubled", "the id of the message that was sent twice", faults.nudge_doubled
    ),
    **{
        f"link_{kind}": Fault(11, f"a connection {name}", _HIT, partial(network.link_fault, fault))
        for kind, fault, name in _LINKS
    },
    "rolling_upgrade": Fault(
        *(10, "all processes replaced in turn by SIGTERM", "wait status of each"),
        rolling.rolling_upgrade,
    ),
    "upload_broken_off": Fault(
        *(20, "an upload broken off", "bytes sent; the tag of no job"),
        partial(faults.broken_off, "upload"),
    ),
    "stream_broken_off": Fault(
        *(20, "a stream broken off by its client, which resumes", _SEQS),
        partial(faults.broken_off, "stream"),
    ),
}


@dataclass(frozen=True, slots=True)
class Planned:
    """Fault of the schedule."""

    number: int
    at_s: float  #: since the start
    kind: str
    seed: int  #: of its random choices


def plan(seed: int, count: int, length_s: float, without: Collection[str] = ()) -> list[Planned]:
    """Plans so many faults over that time: each kind by its share, in random order.

    without: kinds that are left out then; all others stay as they are."""
    dice = Random(seed)
    kinds = _deal(count)
    dice.shuffle(kinds)
    step_s = length_s / max(1, count)
    planned = [
        Planned(number, (number + dice.random()) * step_s, kind, dice.getrandbits(32))
        for number, kind in enumerate(kinds)
    ]
    return [fault for fault in planned if fault.kind not in without]


def _deal(count: int) -> list[str]:
    """Kinds by their shares; remainders go to those that rounding cut most."""
    all_shares = sum(fault.share for fault in FAULTS.values())
    exact = {kind: count * fault.share / all_shares for kind, fault in FAULTS.items()}
    dealt = {kind: int(share) for kind, share in exact.items()}
    short = sorted(exact, key=lambda kind: dealt[kind] - exact[kind])
    for kind in short[: count - sum(dealt.values())]:
        dealt[kind] += 1
    return [kind for kind, number in dealt.items() for _ in range(number)]
