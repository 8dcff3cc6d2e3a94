"""Functions of faults: each waits for a target, hits it, and returns the proof.

Each is a generator that the main loop steps, so that faults overlap, and one thread starts and
signals all processes.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from random import Random
from signal import SIGCONT, SIGKILL, SIGQUIT, SIGSTOP, SIGTERM, Signals
from typing import Any

import redis

from jobs import clock
from ops.bench.chaos.faults import targets
from ops.bench.chaos.faults.targets import PATIENCE_S, Proof, Stage, Steps, Unfired, true, until
from ops.bench.chaos.fleet import LEASE_S, Fleet, look, send
from ops.processes.children import Child, Process, describe_exit

_RECOVERED_WITHIN_S = 120.0
_CALM_S = 3.0  # between two shutdowns of PostgreSQL, so that work progresses
_QUEUE = "millrace.default"
_CANARY = "chaos:canary"

SliceKey = tuple[Any, int]

# -- workers


def worker_ended(number: Signals, stage: Stage, dice: Random) -> Steps[Proof]:
    """Sends SIGTERM, on which a worker releases its slices and exits, or SIGKILL.

    recovery_s: time until each of its slices was claimed again, after SIGKILL. The worker's
    supervisor logs the wait status.
    """
    worker = yield from targets.a_worker(stage, dice)
    with stage.holding(f"worker {worker.pid}"):
        held = _held_by(stage, worker)
        since_s = clock.monotonic()
        if not send(worker.pid, number):
            raise Unfired("it ended by itself")
        yield from true(lambda: worker.now is None)
        status = yield from until(lambda: stage.fleet.ended_with(worker.supervisor, worker.pid))
        if ("exit code" if number == SIGTERM else "SIGKILL") not in status:
            raise Unfired(f"it ended with {status}")
        took_s = round(clock.monotonic() - since_s, 3)
    proof = {"pid": worker.pid, "incarnation": worker.incarnation, "wait_status": status}
    proof |= {"held": len(held), "took_s": took_s}
    if number == SIGTERM:
        return proof
    recovery_s, never = yield from _recovery(stage, held, since_s)
    return proof | {"recovery_s": recovery_s, "unrecovered": never}


def worker_stopped(stage: Stage, dice: Random) -> Steps[Proof]:
    """Makes a zombie: SIGSTOP until others have its slices, then SIGCONT."""
    worker = yield from targets.a_worker(stage, dice)
    with stage.holding(f"worker {worker.pid}"):
        held = _held_by(stage, worker)
        if not send(worker.pid, SIGSTOP):
            raise Unfired("it ended by itself")
        since_s = clock.monotonic()
        least_s = LEASE_S * dice.uniform(1.2, 2.0)
        try:
            yield from true(lambda: worker.state == "T", 5.0)
            while (slept_s := clock.monotonic() - since_s) < least_s or (
                slept_s < PATIENCE_S and not _all_taken(stage, held)
            ):
                if worker.now is None:
                    break
                yield
            woken = worker.now is not None
        finally:
            send(worker.pid, SIGCONT)
        if woken:
            yield from true(lambda: worker.state != "T", 5.0)
    if woken and not _all_taken(stage, held):
        raise Unfired("its leases were not taken")
    return {
        "pid": worker.pid,
        "incarnation": worker.incarnation,
        "state_seen": "T",
        "stopped_s": round(slept_s, 3),
        "lease_s": LEASE_S,
        "leases_taken_by_others": len(held),
        "woken": woken,  # else its supervisor ended it, hanging as it was
    }


_HELD = "SELECT job_id, start, epoch FROM slices WHERE state = 'leased' AND lease_owner = %s"
_NOW = """
    SELECT s.job_id, s.start, s.epoch, s.state, j.state FROM slices s JOIN jobs j ON j.id = s.job_id
    WHERE (s.job_id, s.start) IN (SELECT * FROM unnest(%s::uuid[], %s::int[]))
"""


def _held_by(stage: Stage, worker: targets.Worker) -> dict[SliceKey, int]:
    """Epochs of the slices that a worker holds."""
    rows = stage.fleet.query(_HELD, [worker.incarnation]) or []
    return {(job, start): epoch for job, start, epoch in rows}


def _slices_now(stage: Stage, keys: Mapping[SliceKey, int]) -> list[tuple[Any, ...]] | None:
    return stage.fleet.query(_NOW, [[job for job, _ in keys], [start for _, start in keys]])


def _all_taken(stage: Stage, held: Mapping[SliceKey, int]) -> bool:
    """Returns True if the former owner holds none of these leases any more."""
    rows = _slices_now(stage, held) if held else []
    return rows is not None and all(
        epoch > held[job, start] or state != "leased" for job, start, epoch, state, _ in rows
    )


def _recovery(
    stage: Stage, held: Mapping[SliceKey, int], since_s: float
) -> Steps[tuple[list[float], int]]:
    """Returns (seconds until each slice was claimed again, number that never were).

    Slices that ended without a claim (settled before the death, cancelled, expired, paused) don't
    count.
    """
    open_, found = dict(held), []
    while open_ and (after_s := round(clock.monotonic() - since_s, 3)) < _RECOVERED_WITHIN_S:
        for job, start, epoch, state, job_state in _slices_now(stage, open_) or ():
            claimed = epoch > open_[job, start] and state in ("leased", "done")
            if claimed and job_state in ("running", "completed"):
                found.append(after_s)
            if claimed or state in ("done", "held"):
                del open_[job, start]
        yield
    return found, len(open_)


# -- api and keeper


def child_killed(which: str, stage: Stage, dice: Random) -> Steps[Proof]:
    """Sends SIGKILL to one of the fleet's apis or keepers."""

    child = yield from until(lambda: _any_alive(which, stage, dice))
    process = child.process
    assert process
    status = yield from end(process)
    return {"process": child.name, "pid": process.pid, "wait_status": status}


def end(process: Process, number: Signals = SIGKILL) -> Steps[str]:
    """Signals a process; returns its wait status."""
    process.send_signal(number)
    code = yield from until(process.poll)
    if number == SIGKILL and code != -number:
        raise Unfired(f"it ended with {describe_exit(code)}")
    return describe_exit(code)


def child_frozen(which: str, stage: Stage, dice: Random) -> Steps[Proof]:
    """Stops one of the fleet's apis or keepers with SIGSTOP for up to two leases."""
    child = yield from until(lambda: _any_alive(which, stage, dice))
    assert child.process
    stage.fleet.stops[child.name] += 1
    with stage.holding(child.name):
        return (yield from _frozen([child.process.pid], dice)) | {"process": child.name}


def _any_alive(which: str, stage: Stage, dice: Random) -> Child | None:
    children: list[Child] = getattr(stage.fleet, which)
    free = [child for child in children if child.alive() and child.name not in stage.busy]
    return dice.choice(free) if free else None


def _frozen(pids: Sequence[int], dice: Random) -> Steps[Proof]:
    """Stops processes, the first one first, for up to two leases."""
    stopped = [pid for pid in pids if send(pid, SIGSTOP)]
    since_s = clock.monotonic()
    try:
        seen = yield from until(lambda: state_of(pids[0], "T"), 5.0)
        yield from targets.a_while(LEASE_S * dice.uniform(0.5, 2.0))
    finally:
        for pid in stopped:
            send(pid, SIGCONT)
    slept_s = round(clock.monotonic() - since_s, 3)
    return {"pid": pids[0], "state_seen": seen, "stopped_s": slept_s}


def state_of(pid: int, state: str) -> str | None:
    """Returns the state where the process is in it."""
    found = look(pid)
    return state if found and found.state == state else None


# -- servers


def postgres_frozen(stage: Stage, dice: Random) -> Steps[Proof]:
    """Stops all of PostgreSQL's processes: connections stay, and nobody answers."""
    yield from true(lambda: "postgres" not in stage.busy)
    with stage.holding("postgres"), stage.fleet.no_queries():
        process = yield from until(lambda: stage.fleet.servers.postgres.process)
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        return (yield from _frozen([process.pid, *map(int, children)], dice))


def redis_full(stage: Stage, dice: Random) -> Steps[Proof]:
    """Bounds Redis' memory to less than it has: reads are answered, writes fail."""

    def refused() -> str | None:
        """Error of a write, once Redis refuses them."""
        try:
            stage.fleet.redis.config_set("maxmemory", 1)
            stage.fleet.redis.set(_CANARY, "1")
        except redis.OutOfMemoryError as error:
            return str(error)
        except redis.RedisError:
            return None
        return None

    yield from true(lambda: "redis" not in stage.busy)
    with stage.holding("redis"):
        process = stage.fleet.server("redis")
        try:
            error = yield from until(refused)
            yield from targets.a_while(dice.uniform(1.0, 5.0))
        finally:
            with suppress(redis.RedisError):  # one that starts again has no bound
                stage.fleet.redis.config_set("maxmemory", 0)
    return {"pid": process and process.pid, "error": error}


def postgres_stopped(stage: Stage, dice: Random) -> Steps[Proof]:
    """Shuts PostgreSQL down at once: no checkpoint, every connection cut."""
    return (yield from _restarted(stage, dice, "postgres", _started, SIGQUIT, _CALM_S))


def redis_killed(stage: Stage, dice: Random) -> Steps[Proof]:
    """Sends SIGKILL; an empty Redis takes its place."""
    return (yield from _restarted(stage, dice, "redis", _run_id, SIGKILL))


def _restarted(
    stage: Stage, dice: Random, name: str, identity: Callable[[Fleet], dict[str, str] | None],
    number: Signals, calm_s: float = 0.0,
) -> Steps[Proof]:  # fmt: skip
    """Ends a server, which the fleet restarts within a second, and keeps faults off for calm_s."""
    yield from true(lambda: name not in stage.busy)
    with stage.holding(name):
        before = yield from until(lambda: identity(stage.fleet))
        process = stage.fleet.server(name)
        assert process
        stage.fleet.keep_down(name, dice.uniform(0.0, 1.0))
        status = yield from end(process, number)
        after = yield from until(lambda: identity(stage.fleet))
        yield from targets.a_while(calm_s)
    if after == before:
        raise Unfired("the same server answers")
    proof = {what: [before[what], after[what]] for what in after}
    return {"pid": process.pid, "wait_status": status, **proof}


def _started(fleet: Fleet) -> dict[str, str] | None:
    rows = fleet.query("SELECT pg_postmaster_start_time()::text")
    return {"pg_postmaster_start_time": rows[0][0]} if rows else None


def _run_id(fleet: Fleet) -> dict[str, str] | None:
    with suppress(redis.RedisError):
        return {"run_id": str(fleet.redis.info("server")["run_id"])}
    return None


def redis_flushed(stage: Stage, dice: Random) -> Steps[Proof]:
    """Deletes all of Redis: queue, unacknowledged nudges, lanes, ready workers."""

    def flush() -> int | None:
        """Number of keys before, including our canary."""
        with suppress(redis.RedisError):
            client = stage.fleet.redis
            client.set(_CANARY, "1")
            keys = int(client.dbsize())
            client.flushall()
            return None if client.exists(_CANARY) else keys
        return None

    yield from true(lambda: "redis" not in stage.busy)
    with stage.holding("redis"):
        keys = yield from until(flush)
        process = stage.fleet.server("redis")
    return {"pid": process and process.pid, "keys_before": keys, "canary_after": False}


# -- nudges


def nudge_dropped(stage: Stage, dice: Random) -> Steps[Proof]:
    """Takes a nudge from the queue and drops it."""
    return {"nudge": _id_of((yield from _steal(stage)))}


def nudge_doubled(stage: Stage, dice: Random) -> Steps[Proof]:
    """Delivers a nudge twice, as after a visibility timeout."""
    nudge = yield from _steal(stage)
    with suppress(redis.RedisError):
        length = int(stage.fleet.redis.lpush(_QUEUE, nudge, nudge))
        return {"nudge": _id_of(nudge), "queue_length": length}
    raise Unfired("Redis went away")


def _steal(stage: Stage) -> Steps[bytes]:
    """Takes a nudge, waiting in line with the workers on a connection of its own."""
    deadline_s = clock.monotonic() + PATIENCE_S
    while clock.monotonic() < deadline_s:
        with suppress(redis.RedisError):
            thief: Any = stage.fleet.redis.connection_pool.make_connection()
            try:
                thief.connect()
                thief.send_command("BLPOP", _QUEUE, 0)
                while clock.monotonic() < deadline_s:
                    if thief.can_read(timeout=0):
                        _, nudge = thief.read_response()
                        return bytes(nudge)
                    yield
            finally:
                thief.disconnect()
        yield
    raise Unfired("no nudge came")


def _id_of(nudge: bytes) -> str:
    return str(json.loads(nudge)["headers"]["id"])


# -- clients


def broken_off(what: str, stage: Stage, dice: Random) -> Steps[Proof]:
    """Makes a client break off its upload, or a stream of results, which it resumes."""
    done = stage.load.ask_to_break_off(what)
    yield from true(done.done, 2 * PATIENCE_S)
    proof: Proof = done.result()
    return proof
