"""Run of a chaos test: start everything, inject faults, stop, check, report."""

import shutil
import signal
import sys
import tempfile
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import click
import psycopg
import redis

from jobs import clock
from jobs.telemetry import logs
from ops.bench.chaos import record
from ops.bench.chaos.faults.faults import FAULTS
from ops.bench.chaos.faults.schedule import Planned, plan
from ops.bench.chaos.faults.targets import Proof, Stage, Steps, Unfired
from ops.bench.chaos.fleet import Fleet
from ops.bench.chaos.ledger import Ledger
from ops.bench.chaos.load import Load
from ops.bench.chaos.verify import Findings, verify

_STEP_S = 0.03
_LONGEST_STEP_S = 0.3
_LATE_S = 120.0  # and as long again as planned: what has not fired then, was missed
_SAY_EVERY_S = 10.0
_SAMPLE_EVERY_S = 1.0
_TRIES = 3
_CALM_WITHIN_S = 400.0  # clients follow their jobs to the end
_AWAY = (psycopg.Error, redis.RedisError)

_DONE = """
    SELECT coalesce(sum(n_succeeded + n_failed + n_cancelled + n_expired), 0)::int8 FROM slices
"""
_DURABILITY = """
    SELECT name, setting FROM pg_settings
    WHERE name IN ('fsync', 'synchronous_commit', 'full_page_writes') ORDER BY name
"""
_UNLOGGED = "SELECT relname FROM pg_class WHERE relpersistence = 'u'"


def run(seed: int, minutes: float, faults: int | None, recorded: bool) -> None:
    """Exits non-zero, and keeps the folder, if anything is lost, doubled, out of order or wrong."""
    logs.configure("chaos")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    folder = Path(tempfile.mkdtemp(prefix=f"millrace-chaos-{seed}-"))
    folder.chmod(0o755)
    ledger = Ledger(folder / "ledger.jsonl")
    planned = plan(seed, faults or int(50 * minutes), 60 * minutes)
    _say(f"{len(planned)} faults in {minutes:g} minutes, seed {seed}; {ledger.path}")
    with _fleet(folder) as fleet:
        durability = _durability(fleet, ledger)
        load = Load(fleet.ports, seed, ledger)
        load.start()
        history = _inject(Stage(fleet, load), planned, ledger)
        _say("no more faults; the clients follow their jobs to the end")
        load.close()
        _poll_until(fleet, load.over, _CALM_WITHIN_S)
        found = _aside(fleet, lambda: verify(fleet, load, ledger))
    ledger.close()
    record.finish(
        record.Run(seed, minutes, len(planned), durability, history, load, found), recorded
    )
    _leave(folder, ledger, found)


def _say(what: str) -> None:
    click.echo(what, err=True)


@contextmanager
def _fleet(folder: Path) -> Iterator[Fleet]:
    home = folder / "home"
    home.mkdir()
    fleet = Fleet(home)
    try:
        fleet.start()
        yield fleet
    finally:
        fleet.stop()


def _durability(fleet: Fleet, ledger: Ledger) -> dict[str, str]:
    """Settings of PostgreSQL that show that durability is not relaxed."""
    found = dict(fleet.query(_DURABILITY) or ())
    unlogged = [name for (name,) in fleet.query(_UNLOGGED) or ()]
    found["unlogged tables"] = ", ".join(unlogged) or "none"
    ledger.write("durability", **found)
    _say("; ".join(f"{name}: {value}" for name, value in found.items()))
    return found


@dataclass
class _Going:
    """Fault in progress."""

    planned: Planned
    steps: Steps[Proof]
    since_s: float
    tries: int


def _inject(stage: Stage, planned: list[Planned], ledger: Ledger) -> record.History:
    """Main loop: steps faults from their due times on, concurrently, and keeps the fleet running.

    Ends once each has fired or was missed too often, or after far too long.
    """
    history = record.History()
    waiting, going = deque((fault, 1) for fault in planned), list[_Going]()
    now_s = said_s = sampled_s = 0.0
    looked_s = clock.monotonic()
    over_s = 2 * planned[-1].at_s + _LATE_S
    while (waiting or going) and now_s < over_s:
        # Time stands still while a server starts: what was due meanwhile doesn't come all at once.
        now_s += min(clock.monotonic() - looked_s, _LONGEST_STEP_S)
        looked_s = clock.monotonic()
        while waiting and waiting[0][0].at_s <= now_s:
            fault, tries = waiting.popleft()
            going.append(_Going(fault, FAULTS[fault.kind](stage, Random(fault.seed)), now_s, tries))
        for one in list(going):
            if ended := _step(one, history, ledger, now_s):
                going.remove(one)
                if ended == "missed" and one.tries < _TRIES:
                    waiting.append((one.planned, one.tries + 1))
        stage.fleet.poll()
        if now_s >= sampled_s + _SAMPLE_EVERY_S and (rows := stage.fleet.query(_DONE)):
            sampled_s = now_s
            history.done.append((now_s, rows[0][0]))
        if now_s >= said_s + _SAY_EVERY_S:
            said_s = now_s
            _say_progress(now_s, history, len(planned), stage.load)
        clock.sleep(_STEP_S)
    history.missed += len(waiting) + len(going)
    for one in going:
        one.steps.close()  # continues stopped processes
    return history


def _step(one: _Going, history: record.History, ledger: Ledger, now_s: float) -> str | None:
    """Steps a fault; returns "fired" or "missed" once it has ended."""
    try:
        next(one.steps)
        return None
    except StopIteration as done:
        proof: Proof = done.value
        history.fired.append((one.since_s, one.planned.kind, proof))
        _write(ledger, one, fired=True, proof=proof)
        return "fired"
    except (Unfired, *_AWAY) as error:
        history.missed += 1
        _write(ledger, one, fired=False, error=str(error))
        return "missed"


def _write(ledger: Ledger, one: _Going, **what: Any) -> None:
    ledger.write(
        "fault",
        number=one.planned.number,
        kind=one.planned.kind,
        planned_s=round(one.planned.at_s, 2),
        begun_s=round(one.since_s, 2),
        **what,
    )


def _say_progress(now_s: float, history: record.History, faults: int, load: Load) -> None:
    done = history.done[-1][1] if history.done else 0
    _say(
        f"{now_s:5.0f} s: {len(history.fired)} of {faults} faults, {history.missed} missed; "
        f"{len(load.followed)} jobs, {done} results, {len(load.troubles)} troubles"
    )


def _poll_until(fleet: Fleet, over: Callable[[], bool], within_s: float) -> None:
    deadline_s = clock.monotonic() + within_s
    while not over() and clock.monotonic() < deadline_s:
        fleet.poll()
        clock.sleep(_STEP_S)


def _aside(fleet: Fleet, act: Callable[[], Findings]) -> Findings:
    """Runs it on another thread, while this one keeps the fleet running."""
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(act)
        while not done.done():
            fleet.poll()
            clock.sleep(_STEP_S)
        return done.result()


def _leave(folder: Path, ledger: Ledger, found: Findings) -> None:
    if found.broken:
        for what in found.messages[:20]:
            _say(f"broken: {what}")
        raise click.ClickException(f"not everything holds; the data and the ledger are in {folder}")
    shutil.rmtree(folder / "home", ignore_errors=True)
    _say(f"everything holds; the ledger: {ledger.path}")
