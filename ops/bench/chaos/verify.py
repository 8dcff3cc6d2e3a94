"""Checks of every job against a plain loop over its items, and of the database's invariants."""

import json
from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise
from random import Random
from typing import Any

import psycopg

from jobs import clock, ids
from jobs.states import TERMINAL
from jobs.store import db, invariants
from ops.bench.chaos.client import CONNECTION_ERRORS, Api
from ops.bench.chaos.fleet import Fleet
from ops.bench.chaos.job_client import Followed
from ops.bench.chaos.ledger import Ledger
from ops.bench.chaos.load import Load

_TERMINAL_WITHIN_S = 180.0
_FOUND = "SELECT id, CAST(metadata AS jsonb) ->> 'chaos' FROM jobs"


@dataclass
class Findings:
    """Counts of faults of the platform, with descriptions."""

    jobs: int = 0
    items: int = 0
    read_while_running: int = 0
    lost: int = 0
    duplicated: int = 0
    out_of_order: int = 0
    wrong: int = 0
    innocent_failed: int = 0
    changed: int = 0
    violations: int = 0
    messages: list[str] = field(default_factory=list)  #: the first 200

    def add(self, what: str) -> None:
        """Describes a fault."""
        if len(self.messages) < 200:
            self.messages.append(what)

    @property
    def broken(self) -> bool:
        """True if anything was found."""
        return bool(self.messages)


def verify(fleet: Fleet, load: Load, ledger: Ledger) -> Findings:
    """Checks everything, while the main thread keeps the fleet running."""
    found = Findings()
    api = Api(fleet.ports, Random(0))
    for trouble in load.troubles:
        found.add(trouble)
    _await_terminal(fleet, api, found)
    jobs = _all_jobs(fleet, load, found)
    for followed in jobs:
        _check_job(followed, api, found)
    _check_invariants(fleet, found)
    for what in found.messages:
        ledger.write("finding", what=what)
    return found


def _await_terminal(fleet: Fleet, api: Api, found: Findings) -> None:
    """Waits for the end of all jobs; resumes paused ones, whose clients have ended."""
    deadline_s = clock.monotonic() + _TERMINAL_WITHIN_S
    while open_ := _open_jobs(fleet):
        for id, state in open_:
            if state == "paused":
                api.retry("POST", f"/jobs/{ids.show('job', id)}/resume")
        if clock.monotonic() > deadline_s:
            found.lost += len(open_)
            found.add(f"still open after {_TERMINAL_WITHIN_S:g} s: {open_[:20]}")
            return
        clock.sleep(0.5)


def _rows(fleet: Fleet, query: str) -> list[Any]:
    with psycopg.connect(db.plain_url(fleet.settings.database_url)) as connection:
        return connection.execute(query.encode()).fetchall()


def _open_jobs(fleet: Fleet) -> list[Any]:
    terminal = ", ".join(f"'{state}'" for state in TERMINAL)
    return _rows(fleet, f"SELECT id, state FROM jobs WHERE state NOT IN ({terminal})")


def _all_jobs(fleet: Fleet, load: Load, found: Findings) -> list[Followed]:
    """Acknowledged jobs, and others that exist.

    A torn upload must have left none, a key no more than one.
    """
    acknowledged = {followed.job: followed for followed in load.followed}
    tags: Counter[str] = Counter()
    more = []
    for id, tag in _rows(fleet, _FOUND):
        job = ids.show("job", id)
        tags[tag] += 1
        if tag in load.torn:
            found.add(f"{job} is of {tag}, whose upload was broken off")
        elif job not in acknowledged and tag in load.works:
            more.append(Followed(load.works[tag], job, [], may_expire=True))
    if load.keys and (twice := [tag for tag, n in tags.items() if tag and n > 1]):
        found.duplicated += len(twice)
        found.add(f"more than one job of one Idempotency-Key: {twice[:20]}")
    found.jobs = len(load.followed)
    found.read_while_running = sum(followed.read for followed in load.followed)
    return [*load.followed, *more]


def _check_job(followed: Followed, api: Api, found: Findings) -> None:
    answer = api.retry("GET", f"/jobs/{followed.job}")
    if answer.status != 200:
        found.lost += followed.work.total
        found.add(f"{followed.job} was acknowledged and is gone: {answer.status}")
        return
    judge(followed, answer.json(), _all_lines(api, followed.job), found)


def judge(followed: Followed, job: dict[str, Any], lines: list[bytes], found: Findings) -> None:
    """Checks a job that has ended, with all its results, against a plain loop over its items."""
    if job["generation"] != followed.generation:
        followed.start_generation(job["generation"])
    found.items += followed.work.total
    _check_order(followed, lines, found)
    for line in lines:
        _check_line(followed, line, found)
    _check_counts(followed, job, lines, found)
    found.out_of_order += followed.out_of_order
    found.changed += followed.changed
    if followed.out_of_order or followed.changed:
        found.add(
            f"{followed.job}: read {followed.out_of_order} out of order, {followed.changed} changed"
        )


def _all_lines(api: Api, job: str) -> list[bytes]:
    for _ in range(20):
        try:
            with api.stream(f"/jobs/{job}/results") as (head, stream):
                if head.status == 200:
                    return list(stream)
        except CONNECTION_ERRORS:
            pass
        clock.sleep(0.5)
    return []


def _check_order(followed: Followed, lines: list[bytes], found: Findings) -> None:
    seqs = [json.loads(line)["seq"] for line in lines]
    lost = followed.work.total - len(set(seqs))
    twice = len(seqs) - len(set(seqs))
    found.lost += max(0, lost)
    found.duplicated += twice
    out_of_order = sum(1 for a, b in pairwise(seqs) if b <= a)
    found.out_of_order += out_of_order
    if lost or twice or out_of_order:
        found.add(
            f"{followed.job} of {followed.work.total} items: {lost} lost, {twice} twice, "
            f"{out_of_order} out of order"
        )


def _check_line(followed: Followed, line: bytes, found: Findings) -> None:
    result, work = json.loads(line), followed.work
    seq, outcome = result["seq"], result["outcome"]
    if not 0 <= seq < work.total:
        return
    followed.note(seq, line)
    if (outcome == "cancelled" and followed.may_cancel) or (
        outcome == "expired" and followed.may_expire
    ):
        return
    shown = result["output"] if outcome == "succeeded" else (result["error"] or {}).get("code")
    if (outcome, shown) != work.expected(seq):
        found.wrong += 1
        innocent = outcome == "failed" and work.expected(seq)[0] == "succeeded"
        found.innocent_failed += innocent
        found.add(f"{followed.job} {seq}: {line!r} for {work.text(seq)!r}")


def _check_counts(
    followed: Followed, job: dict[str, Any], lines: list[bytes], found: Findings
) -> None:
    outcomes = Counter(json.loads(line)["outcome"] for line in lines)
    counts = {name: job["counts"][name] for name in ("succeeded", "failed", "cancelled", "expired")}
    if counts != {name: outcomes[name] for name in counts}:
        found.wrong += 1
        found.add(f"{followed.job} counts {counts}, its results are {dict(outcomes)}")


def _check_invariants(fleet: Fleet, found: Findings) -> None:
    engine = db.connect(fleet.settings.database_url, pool_size=1, statement_timeout_s=600)
    try:
        with invariants.snapshot(engine) as tx:
            for invariant in invariants.INVARIANTS:
                for violation in invariants.violations(tx, invariant):
                    found.violations += 1
                    found.add(f"invariant {invariant.number} {invariant.name}: {violation}")
    finally:
        engine.dispose()
