"""Run of a chaos test: start everything, inject faults, stop, check, report."""

import shutil
import signal
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random

import click
import psycopg
import redis

from jobs import clock
from jobs.telemetry import logs
from ops.bench.chaos import coverage, record, small_disk
from ops.bench.chaos.clients.client import Ledger
from ops.bench.chaos.clients.health_probe import HealthProbe
from ops.bench.chaos.clients.load import Load
from ops.bench.chaos.faults.table import DISK_FULL, FAULTS, Planned, plan
from ops.bench.chaos.faults.targets import Proof, Stage, Steps, Unfired
from ops.bench.chaos.fleet import ChaosFleet, Fleet
from ops.bench.chaos.verify import Findings, verify
from ops.bench.harness.platform import say

_STEP_S = 0.03
_LONGEST_STEP_S = 0.3
_LATE_S = 120.0  # and as long again as planned: what has not fired then, was missed
_SAY_EVERY_S = 10.0
_SAMPLE_EVERY_S = 1.0
_TRIES = 3
_DISK_MB, _DISK_MB_A_MINUTE = 512, 256  # it stored 90 MB in three minutes of a busy machine
_CALM_WITHIN_S = 400.0  # clients follow their jobs to the end

_DONE = """
    SELECT coalesce(sum(n_succeeded + n_failed + n_cancelled + n_expired), 0)::int8 FROM slices
"""
_DURABILITY = """
    SELECT name, setting FROM pg_settings
    WHERE name IN ('fsync', 'synchronous_commit', 'full_page_writes') ORDER BY name
"""
# Prepared inputs (migration 0024) can be made again.
_UNLOGGED = """
    SELECT relname FROM pg_class
    WHERE relpersistence = 'u' AND relkind = 'r' AND relname <> 'prepared'
"""


def run(seed: int, minutes: float, faults: int | None, recorded: bool) -> None:
    """Exits non-zero, and keeps the folder, if anything is lost, doubled, out of order, wrong, or
    was left untried."""
    logs.configure("chaos")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    folder = Path(tempfile.mkdtemp(prefix=f"millrace-chaos-{seed}-"))
    folder.chmod(0o755)
    ledger = Ledger(folder / "ledger.jsonl")
    with (
        small_disk.mounted(folder / "home", _disk_mb(minutes)) as is_small,
        _fleet(folder / "home") as fleet,
    ):
        left_out = () if is_small else (DISK_FULL,)
        planned = plan(seed, faults or int(50 * minutes), 60 * minutes, left_out)
        say(f"{len(planned)} faults in {minutes:g} minutes, seed {seed}; {ledger.path}")
        if left_out:
            say(f"left out, since no file system can be mounted here: {', '.join(left_out)}")
        durability = _durability(fleet, ledger)
        load = Load(fleet.client_ports, fleet.redis_url, seed, ledger)
        load.start()
        health = HealthProbe(fleet, ledger)
        health.start()
        history = _Injection(Stage(fleet, load), planned, ledger).run()
        health.stop()
        say("no more faults; the clients follow their jobs to the end")
        load.close()
        _poll_until(fleet, load.over, _CALM_WITHIN_S)
        with ThreadPoolExecutor(1) as pool:  # this thread keeps the fleet running
            verified = pool.submit(verify, fleet, load, ledger)
            _poll_until(fleet, verified.done)
            found = verified.result()
        kinds = [fault.kind for fault in planned]
        for gap in coverage.gaps(kinds, history, durability, found, load.streams.tally):
            found.add(gap)
        if found.broken and is_small:
            fleet.stop()
            subprocess.run(["cp", "-a", folder / "home", folder / "kept"], check=True)
    ledger.close()
    ended = record.Run(
        seed, minutes, len(planned), left_out, durability, history, load, found, health
    )
    record.finish(ended, recorded)
    _leave(folder, ledger, found)


def _disk_mb(minutes: float) -> int:
    """Size of the home's disk: more than what the run stores, so that only a fault fills it."""
    return int(_DISK_MB + _DISK_MB_A_MINUTE * minutes)


@contextmanager
def _fleet(home: Path) -> Iterator[ChaosFleet]:
    fleet = ChaosFleet(home)
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
    say("; ".join(f"{name}: {value}" for name, value in found.items()))
    return found


@dataclass
class _Going:
    """Fault in progress."""

    planned: Planned
    steps: Steps[Proof]
    since_s: float
    tries: int


class _Injection:
    """Main loop: steps faults from their due times on, concurrently, and keeps the fleet running.

    Ends once each has fired or was missed too often, or after far too long.
    """

    def __init__(self, stage: Stage, planned: list[Planned], ledger: Ledger) -> None:
        self._stage, self._planned, self._ledger = stage, planned, ledger
        self._waiting, self._going = deque((fault, 1) for fault in planned), list[_Going]()
        self._now_s = self._said_s = self._sampled_s = 0.0
        self._history = record.History()

    def run(self) -> record.History:
        """Returns what happened."""
        looked_s = clock.monotonic()
        over_s = 2 * self._planned[-1].at_s + _LATE_S
        while (self._waiting or self._going) and self._now_s < over_s:
            # Time stands still while a server starts: what was due doesn't come all at once.
            self._now_s += min(clock.monotonic() - looked_s, _LONGEST_STEP_S)
            looked_s = clock.monotonic()
            self._begin()
            for one in list(self._going):
                self._step(one)
            self._stage.fleet.poll()
            self._watch()
            clock.sleep(_STEP_S)
        self._history.missed += len(self._waiting) + len(self._going)
        for one in self._going:
            one.steps.close()  # continues stopped processes
        return self._history

    def _begin(self) -> None:
        """Begins the faults that are due."""
        while self._waiting and self._waiting[0][0].at_s <= self._now_s:
            fault, tries = self._waiting.popleft()
            steps = FAULTS[fault.kind].act(self._stage, Random(fault.seed))
            self._going.append(_Going(fault, steps, self._now_s, tries))

    def _step(self, one: _Going) -> None:
        """Steps a fault. One that was missed waits for another try."""
        planned, begun_s = one.planned, round(one.since_s, 2)
        what = {"number": planned.number, "kind": planned.kind, "begun_s": begun_s}
        what["planned_s"] = round(planned.at_s, 2)
        try:
            next(one.steps)
            return
        except StopIteration as done:
            self._history.fired.append((one.since_s, planned.kind, done.value))
            self._history.over_s.append(clock.monotonic())
            self._ledger.write("fault", **what, fired=True, proof=done.value)
        except (Unfired, psycopg.Error, redis.RedisError) as error:
            self._history.missed += 1
            self._ledger.write("fault", **what, fired=False, error=str(error))
            if one.tries < _TRIES:
                self._waiting.append((planned, one.tries + 1))
        self._going.remove(one)

    def _watch(self) -> None:
        """Samples the number of results, and prints the progress."""
        history, fleet, load = self._history, self._stage.fleet, self._stage.load
        if self._now_s >= self._sampled_s + _SAMPLE_EVERY_S and (rows := fleet.query(_DONE)):
            self._sampled_s = self._now_s
            history.done.append((self._now_s, rows[0][0]))
        if self._now_s >= self._said_s + _SAY_EVERY_S:
            self._said_s = self._now_s
            done = history.done[-1][1] if history.done else 0
            say(
                f"{self._now_s:5.0f} s: {len(history.fired)} of {len(self._planned)} faults, "
                f"{history.missed} missed; {len(load.followed)} jobs, {done} results, "
                f"{len(load.troubles)} troubles"
            )


def _poll_until(fleet: Fleet, over: Callable[[], bool], within_s: float = float("inf")) -> None:
    deadline_s = clock.monotonic() + within_s
    while not over() and clock.monotonic() < deadline_s:
        fleet.poll()
        clock.sleep(_STEP_S)


def _leave(folder: Path, ledger: Ledger, found: Findings) -> None:
    if found.broken:
        for what in found.messages[:20]:
            say(f"broken: {what}")
        raise click.ClickException(f"not everything holds; the data and the ledger are in {folder}")
    for name in ("home", "logs", "redis", "flaky"):
        shutil.rmtree(folder / name, ignore_errors=True)
    say(f"everything holds; the ledger: {ledger.path}")
