"""Faults of servers that others replace, or that wait for others."""

from collections.abc import Iterator
from contextlib import contextmanager
from math import inf
from random import Random
from signal import SIGCONT, SIGKILL, Signals
from statistics import median
from typing import Any

import psycopg

from jobs import clock
from jobs.store import db
from ops.bench.chaos.faults.faults import end, state_of
from ops.bench.chaos.faults.targets import PATIENCE_S, Proof, Stage, Steps, Unfired, true, until
from ops.bench.chaos.fleet import LEASE_S
from ops.bench.chaos.network import links
from ops.bench.chaos.servers.postgres_standby import Standby
from ops.bench.chaos.servers.replicated import discard
from ops.embedded.errors import EmbeddedError
from ops.processes.children import Process, describe_exit

_NOTICED_MS = 1000  # silence of a master, until Sentinels take it for dead
_SAMPLE_EVERY_S = 0.1
_FOLLOWS = "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'"
_WAITING = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
_WRITTEN = "SELECT pg_current_wal_flush_lsn()"
_TIMELINE = "SELECT left(pg_walfile_name(pg_current_wal_insert_lsn()), 8)"
_BEHIND = "SELECT count(*) FROM pg_stat_replication WHERE flush_lsn < %s::pg_lsn"
_LATE_S = """
    SELECT extract(epoch FROM flush_lag)::float8 FROM pg_stat_replication
    WHERE flush_lag IS NOT NULL
"""


def redis_failover(stage: Stage, dice: Random) -> Steps[Proof]:
    """Kills the master of Redis: Sentinels notice, agree, and give its place to the replica."""
    yield from true(lambda: "redis" not in stage.busy)
    fleet, group = stage.fleet, stage.fleet.servers.group
    with stage.holding("redis"):
        yield from true(group.has_replica)  # one that is linked since the last loss of all
        before, process = group.master, group.process
        group.give_up_after(_NOTICED_MS)
        fleet.keep_down("redis", inf)
        try:
            since_s = clock.monotonic()
            status = yield from end(process)
            yield from true(lambda: group.master != before)
        finally:
            fleet.keep_down("redis", 0)
            group.give_up_after()
    took_s = round(clock.monotonic() - since_s, 3)
    return {"wait_status": status, "masters": [before, group.master], "took_s": took_s}


def primary_lost(number: Signals, stage: Stage, dice: Random) -> Steps[Proof]:
    """Kills or freezes the primary of PostgreSQL, and promotes a standby that has every commit
    that was acknowledged. A frozen one stays so for up to two leases; none returns."""
    yield from true(lambda: "postgres" not in stage.busy)
    fleet, servers = stage.fleet, stage.fleet.servers
    with stage.holding("postgres"), _standby(stage) as standby:
        yield from _follow(stage, standby)
        fleet.keep_down("postgres", inf)
        with fleet.no_queries():
            process = servers.postgres.process
            assert process
            since_s = clock.monotonic()
            servers.strike(number)
            status = yield from _struck(process, number)
            _ask(standby, "SELECT pg_promote(false)")
            yield from true(lambda: not _ask(standby, "SELECT pg_is_in_recovery()"))
        servers.take_over(standby, LEASE_S * dice.uniform(0.5, 2.0) if number != SIGKILL else 0)
    promoted_s = round(clock.monotonic() - since_s, 3)
    timeline = _ask(standby, _TIMELINE)
    return {"pid": process.pid, **status, "promoted_s": promoted_s, "timeline": timeline}


def _struck(process: Process, number: Signals) -> Steps[Proof]:
    """Waits until the signal took effect."""
    if number == SIGKILL:
        return {"wait_status": (yield from end(process))}
    return {"state_seen": (yield from until(lambda: state_of(process.pid, "T")))}


def commits_late(stage: Stage, dice: Random) -> Steps[Proof]:
    """Has each commit wait for a standby whose confirmation takes 0.2 s on its way.

    It stands for a disk whose fsync takes 0.2 s: a backend waits at the same place, and commits
    that come while one is on its way share the next one."""
    yield from true(lambda: "postgres" not in stage.busy)
    fleet = stage.fleet
    name = links.of_standby(fleet.servers.room)
    link, late_s = fleet.links[name], list[float]()
    with stage.holding("postgres"), stage.holding(name), _standby(stage, link.port) as standby:
        yield from _follow(stage, standby)
        link.inject("delay_requests")
        try:
            over_s = clock.monotonic() + LEASE_S * dice.uniform(1.0, 3.0)
            sampled_s = 0.0
            while (now_s := clock.monotonic()) < over_s:
                if now_s > sampled_s + _SAMPLE_EVERY_S:
                    sampled_s = now_s
                    late_s += [seconds for (seconds,) in fleet.query(_LATE_S) or ()]
                yield
        finally:
            link.inject("none")
    if not late_s:
        raise Unfired("no commit was confirmed")
    return {"link": name, "samples": len(late_s), "median_late_s": round(median(late_s), 3)}


@contextmanager
def _standby(stage: Stage, proxy: int | None = None) -> Iterator[Standby]:
    """Has room for a standby; one that was not promoted is gone at the end."""
    servers = stage.fleet.servers
    standby, primary = servers.new_standby(proxy), servers.postgres
    try:
        yield standby
    finally:
        if servers.postgres is primary:
            servers.synchronize(False)
            servers.strike(SIGCONT)
            discard(standby)
        stage.fleet.keep_down("postgres", 0)


def _follow(stage: Stage, standby: Standby) -> Steps[None]:
    """Copies the primary, and has its commits wait for the copy. Returns once one does, and the
    copy has all before it."""
    fleet = stage.fleet
    copying = standby.copy()
    try:
        yield from true(lambda: copying.poll() is not None)
    finally:
        copying.kill()
        copying.wait()
    if copying.returncode:
        raise Unfired(f"the copy of the primary ended with {describe_exit(copying.returncode)}")
    try:
        standby.launch()
    except EmbeddedError as error:
        raise Unfired(str(error)) from error
    yield from true(standby.is_ready)
    yield from true(lambda: _count(stage, _FOLLOWS) == 1)
    fleet.servers.synchronize(True)
    yield from true(lambda: _count(stage, _WAITING) > 0)
    written = yield from until(lambda: fleet.query(_WRITTEN))
    yield from true(lambda: _count(stage, _BEHIND, *written[0]) == 0)


def _count(stage: Stage, query: str, *values: Any) -> int:
    rows = stage.fleet.query(query, values)
    return int(rows[0][0]) if rows else -1


def _ask(server: Standby, query: str) -> Any:
    """Returns the only value of a query."""
    url = db.plain_url(server.url)
    with psycopg.connect(url, autocommit=True, connect_timeout=int(PATIENCE_S)) as connection:
        row = connection.execute(query.encode()).fetchone()
    return row and row[0]
