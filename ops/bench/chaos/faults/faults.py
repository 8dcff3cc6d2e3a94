"""Functions of faults: each waits for a target, hits it, and returns the proof.

Each is a generator that the main loop steps, so that faults overlap, and one thread starts and
signals all processes.
"""

import json
import signal
from collections.abc import Callable, Mapping
from contextlib import suppress
from random import Random
from subprocess import Popen
from typing import Any

import redis

from jobs import clock
from ops.bench.chaos.faults.targets import (
    PATIENCE_S,
    Proof,
    Stage,
    Steps,
    Unfired,
    Worker,
    a_while,
    a_worker,
    true,
    until,
)
from ops.bench.chaos.fleet import LEASE_S, send
from ops.processes.children import Child, describe_exit

_RECOVERED_WITHIN_S = 120.0
_CALM_S = 3.0  # between two shutdowns of PostgreSQL, so that work progresses
_QUEUE = "millrace.default"

Fault = Callable[[Stage, Random], Steps[Proof]]
SliceKey = tuple[Any, int]


# -- workers


def worker_killed(stage: Stage, dice: Random) -> Steps[Proof]:
    """Sends SIGKILL; recovery_s: time until each of its slices was claimed again."""
    worker = yield from a_worker(stage, dice)
    with stage.holding(f"worker {worker.pid}"):
        held = _held_by(stage, worker)
        since_s = clock.monotonic()
        proof = yield from _end(stage, worker, signal.SIGKILL, "SIGKILL")
    recovery_s, never = yield from _recovery(stage, held, since_s)
    return proof | {"held": len(held), "recovery_s": recovery_s, "unrecovered": never}


def worker_terminated(stage: Stage, dice: Random) -> Steps[Proof]:
    """Sends SIGTERM: the worker releases its slices and exits."""
    worker = yield from a_worker(stage, dice)
    with stage.holding(f"worker {worker.pid}"):
        held = len(_held_by(stage, worker))
        since_s = clock.monotonic()
        proof = yield from _end(stage, worker, signal.SIGTERM, "exit code")
    return proof | {"held": held, "took_s": round(clock.monotonic() - since_s, 3)}


def _end(stage: Stage, worker: Worker, number: signal.Signals, word: str) -> Steps[Proof]:
    """Ends a worker; its supervisor, which is its parent, logs the wait status."""
    if not send(worker.pid, number):
        raise Unfired("it ended by itself")
    yield from true(lambda: worker.now is None)
    status = yield from until(lambda: stage.fleet.ended_with(worker.supervisor, worker.pid))
    if word not in status:
        raise Unfired(f"it ended with {status}")
    return {"pid": worker.pid, "incarnation": worker.incarnation, "wait_status": status}


def worker_stopped(stage: Stage, dice: Random) -> Steps[Proof]:
    """Makes a zombie: SIGSTOP until others have its slices, then SIGCONT."""
    worker = yield from a_worker(stage, dice)
    with stage.holding(f"worker {worker.pid}"):
        held = _held_by(stage, worker)
        if not send(worker.pid, signal.SIGSTOP):
            raise Unfired("it ended by itself")
        since_s = clock.monotonic()
        least_s = LEASE_S * dice.uniform(1.2, 2.0)
        try:
            yield from true(lambda: worker.now is not None and worker.now.state == "T", 5.0)
            while _asleep_s(since_s) < least_s or (
                _asleep_s(since_s) < PATIENCE_S and not _all_taken(stage, held)
            ):
                if worker.now is None:
                    break
                yield
            slept_s = _asleep_s(since_s)
            woken = worker.now is not None
        finally:
            send(worker.pid, signal.SIGCONT)
        if woken:
            yield from true(lambda: worker.now is None or worker.now.state != "T", 5.0)
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


def _asleep_s(since_s: float) -> float:
    return clock.monotonic() - since_s


_HELD = "SELECT job_id, start, epoch FROM slices WHERE state = 'leased' AND lease_owner = %s"
_NOW = """
    SELECT s.job_id, s.start, s.epoch, s.state, j.state FROM slices s JOIN jobs j ON j.id = s.job_id
    WHERE (s.job_id, s.start) IN (SELECT * FROM unnest(%s::uuid[], %s::int[]))
"""


def _held_by(stage: Stage, worker: Worker) -> dict[SliceKey, int]:
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
        rows = _slices_now(stage, open_)
        for job, start, epoch, state, job_state in rows or ():
            claimed = epoch > open_[job, start] and state in ("leased", "done")
            if claimed and job_state in ("running", "completed"):
                found.append(after_s)
            if claimed or state in ("done", "held"):
                del open_[job, start]
        yield
    return found, len(open_)


# -- api and keeper


def api_killed(stage: Stage, dice: Random) -> Steps[Proof]:
    """Sends SIGKILL to an api."""
    return (yield from _child_killed(stage, stage.fleet.apis, dice))


def keeper_killed(stage: Stage, dice: Random) -> Steps[Proof]:
    """Sends SIGKILL to a keeper."""
    return (yield from _child_killed(stage, stage.fleet.keepers, dice))


def _child_killed(stage: Stage, children: list[Child], dice: Random) -> Steps[Proof]:
    child = yield from until(lambda: _any_alive(children, dice))
    process = child.process
    assert process
    status = yield from _kill(process)
    return {"process": child.name, "pid": process.pid, "wait_status": status}


def _any_alive(children: list[Child], dice: Random) -> Child | None:
    alive = [child for child in children if child.alive()]
    return dice.choice(alive) if alive else None


def _kill(process: "Popen[bytes]", number: signal.Signals = signal.SIGKILL) -> Steps[str]:
    """Signals a process; returns its wait status."""
    process.send_signal(number)
    code = yield from until(process.poll)
    if number == signal.SIGKILL and code != -number:
        raise Unfired(f"it ended with {describe_exit(code)}")
    return describe_exit(code)


# -- servers


_STARTED = "SELECT pg_postmaster_start_time()::text"


def postgres_stopped(stage: Stage, dice: Random) -> Steps[Proof]:
    """Shuts PostgreSQL down at once: no checkpoint, every connection cut."""
    yield from true(lambda: "postgres" not in stage.busy)
    with stage.holding("postgres"):
        before = yield from until(lambda: stage.fleet.query(_STARTED))
        process = stage.fleet.servers.postgres.process
        assert process
        stage.fleet.keep_down("postgres", dice.uniform(0.0, 1.0))
        status = yield from _kill(process, signal.SIGQUIT)
        after = yield from until(lambda: stage.fleet.query(_STARTED))
        yield from a_while(_CALM_S)
    if after == before:
        raise Unfired("the same postmaster answers")
    return {
        "pid": process.pid,
        "wait_status": status,
        "pg_postmaster_start_time": [before[0][0], after[0][0]],
    }


def redis_killed(stage: Stage, dice: Random) -> Steps[Proof]:
    """Sends SIGKILL; an empty Redis takes its place."""
    yield from true(lambda: "redis" not in stage.busy)
    with stage.holding("redis"):
        before = yield from until(lambda: _run_id(stage))
        process = stage.fleet.servers.redis.process
        assert process
        stage.fleet.keep_down("redis", dice.uniform(0.0, 1.0))
        status = yield from _kill(process)
        after = yield from until(lambda: _run_id(stage))
    if after == before:
        raise Unfired("the same Redis answers")
    return {"pid": process.pid, "wait_status": status, "run_id": [before, after]}


def redis_flushed(stage: Stage, dice: Random) -> Steps[Proof]:
    """Deletes all of Redis: queue, unacknowledged nudges, lanes, ready workers."""
    yield from true(lambda: "redis" not in stage.busy)
    with stage.holding("redis"):
        keys = yield from until(lambda: _flush(stage))
        process = stage.fleet.servers.redis.process
    return {"pid": process and process.pid, "keys_before": keys, "canary_after": False}


def _run_id(stage: Stage) -> str | None:
    with suppress(redis.RedisError):
        return str(stage.fleet.redis.info("server")["run_id"])
    return None


def _flush(stage: Stage) -> int | None:
    """Number of keys before, including our canary."""
    with suppress(redis.RedisError):
        client = stage.fleet.redis
        client.set("chaos:canary", "1")
        keys = int(client.dbsize())
        client.flushall()
        if not client.exists("chaos:canary"):
            return keys
    return None


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


def upload_broken_off(stage: Stage, dice: Random) -> Steps[Proof]:
    """Makes a client break off its upload."""
    return (yield from _by_a_client(stage, "upload"))


def stream_broken_off(stage: Stage, dice: Random) -> Steps[Proof]:
    """Makes a client break off a stream of results, and resume it."""
    return (yield from _by_a_client(stage, "stream"))


def _by_a_client(stage: Stage, what: str) -> Steps[Proof]:
    done = stage.load.ask_to_break_off(what)
    yield from true(done.done, 2 * PATIENCE_S)
    proof: Proof = done.result()
    return proof


FAULTS: Mapping[str, Fault] = {
    fault.__name__: fault
    for fault in (
        worker_killed,
        worker_stopped,
        worker_terminated,
        api_killed,
        keeper_killed,
        postgres_stopped,
        redis_killed,
        redis_flushed,
        nudge_dropped,
        nudge_doubled,
        upload_broken_off,
        stream_broken_off,
    )
}
