"""Checks of every job against a plain loop over its items, and of the database's invariants."""

import json
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from random import Random
from typing import Any

import psycopg

from jobs import clock, ids
from jobs.states import TERMINAL
from jobs.store import db
from jobs.store.monitoring import invariants
from ops.bench.chaos.clients.client import CONNECTION_ERRORS, Api, Ledger
from ops.bench.chaos.clients.job_client import Followed
from ops.bench.chaos.clients.load import Load
from ops.bench.chaos.clients.workload import CHAT, ITEM_TOKENS
from ops.bench.chaos.fleet import Fleet

#: Counts of findings that must be 0.
ZERO = ("lost", "duplicated", "out_of_order", "wrong", "innocent_failed", "changed", "misbilled")
_TERMINAL_WITHIN_S = 180.0
_TRIES = 20  # to read a job's results
_JOBS = "SELECT id, CAST(metadata AS jsonb) ->> 'chaos' FROM jobs"
_OPEN = "SELECT id, state FROM jobs WHERE state <> ALL(%s)"
_MISBILLED = """
    SELECT r.job_id, r.seq, r.input_tokens, r.output_tokens
    FROM results r JOIN jobs j ON j.id = r.job_id
    WHERE j.model = %s AND r.outcome = 'succeeded'
      AND (r.input_tokens, r.output_tokens) IS DISTINCT FROM (%s, %s)
"""


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
    misbilled: int = 0
    violations: int = 0
    messages: list[str] = field(default_factory=list)  #: the first 200

    def add(self, what: str, **counts: int) -> None:
        """Describes a fault, and adds to these counts."""
        for name, more in counts.items():
            setattr(self, name, getattr(self, name) + more)
        if len(self.messages) < 200:
            self.messages.append(what)

    @property
    def broken(self) -> bool:
        """True if anything was found."""
        return bool(self.messages)


def verify(fleet: Fleet, load: Load, ledger: Ledger) -> Findings:
    """Checks everything, while the main thread keeps the fleet running."""
    found, api = Findings(), Api(fleet.ports, Random(0))
    for trouble in load.troubles:
        found.add(trouble)
    _await_terminal(fleet, api, found)
    for followed in _all_jobs(fleet, load, found):
        answer = api.retry("GET", f"/jobs/{followed.job}")
        if answer.status_code == 200:
            judge(followed, answer.json(), _all_lines(api, followed.job), found)
        else:
            gone = f"{followed.job} was acknowledged and is gone: {answer.status_code}"
            found.add(gone, lost=followed.work.total)
    for job, *what in _rows(fleet, _MISBILLED, CHAT, ITEM_TOKENS, ITEM_TOKENS):
        found.add(f"{job}: (seq, input, output tokens) {what} of {ITEM_TOKENS}", misbilled=1)
    _check_invariants(fleet, found)
    for what in found.messages:
        ledger.write("finding", what=what)
    return found


def _rows(fleet: Fleet, query: str, *values: Any) -> list[Any]:
    with psycopg.connect(db.plain_url(fleet.database_url)) as connection:
        return connection.execute(query.encode(), values or None).fetchall()


def _await_terminal(fleet: Fleet, api: Api, found: Findings) -> None:
    """Waits for the end of all jobs; resumes paused ones, whose clients have ended."""
    deadline_s = clock.monotonic() + _TERMINAL_WITHIN_S
    while open_ := _rows(fleet, _OPEN, list(TERMINAL)):
        for id, state in open_:
            if state == "paused":
                api.retry("POST", f"/jobs/{ids.show('job', id)}/resume")
        if clock.monotonic() > deadline_s:
            late = f"still open after {_TERMINAL_WITHIN_S:g} s: {open_[:20]}"
            return found.add(late, lost=len(open_))
        clock.sleep(0.5)
    return None


def _all_jobs(fleet: Fleet, load: Load, found: Findings) -> list[Followed]:
    """Acknowledged jobs, and others that exist.

    A torn upload must have left none, a key no more than one.
    """
    acknowledged = {followed.job for followed in load.followed}
    tags: Counter[str] = Counter()
    more = []
    for id, tag in _rows(fleet, _JOBS):
        job = ids.show("job", id)
        tags[tag] += 1
        if tag in load.torn:
            found.add(f"{job} is of {tag}, whose upload was broken off")
        elif job not in acknowledged and tag in load.works:
            more.append(Followed(load.works[tag], job, [], may_expire=True))
    if twice := [tag for tag, n in tags.items() if tag and n > 1]:
        found.add(f"more than one job of one Idempotency-Key: {twice[:20]}", duplicated=len(twice))
    found.jobs = len(load.followed)
    found.read_while_running = sum(followed.read for followed in load.followed)
    return [*load.followed, *more]


def _all_lines(api: Api, job: str) -> list[bytes]:
    for _ in range(_TRIES):
        with suppress(*CONNECTION_ERRORS), api.stream(f"/jobs/{job}/results") as (head, stream):
            if head.status_code == 200:
                return list(stream)
        clock.sleep(0.5)
    return []


def judge(followed: Followed, job: dict[str, Any], lines: list[bytes], found: Findings) -> None:
    """Checks a job that has ended, with all its results, against a plain loop over its items."""
    followed.reach(job["generation"])
    results = [json.loads(line) for line in lines]
    found.items += followed.work.total
    _check_order(followed, [result["seq"] for result in results], found)
    for line, result in zip(lines, results, strict=True):
        _check_result(followed, line, result, found)
    outcomes = Counter(result["outcome"] for result in results)
    counts = {name: job["counts"][name] for name in ("succeeded", "failed", "cancelled", "expired")}
    if counts != {name: outcomes[name] for name in counts}:
        found.add(f"{followed.job} counts {counts}, its results are {dict(outcomes)}", wrong=1)
    if read := {
        name: count for name in ("out_of_order", "changed") if (count := getattr(followed, name))
    }:
        found.add(f"{followed.job}: read with errors: {read}", **read)


def _check_order(followed: Followed, seqs: list[int], found: Findings) -> None:
    missing = followed.work.total - len(set(seqs))
    counts = {
        "lost": max(0, missing),
        "duplicated": len(seqs) - len(set(seqs)),
        "out_of_order": sum(1 for a, b in pairwise(seqs) if b <= a),
    }
    if missing or any(counts.values()):
        found.add(f"{followed.job} of {followed.work.total} items: {counts}", **counts)


def _check_result(followed: Followed, line: bytes, result: dict[str, Any], found: Findings) -> None:
    work, seq, outcome = followed.work, result["seq"], result["outcome"]
    if not 0 <= seq < work.total:
        return
    followed.note(seq, line)
    if (outcome == "cancelled" and followed.may_cancel) or (
        outcome == "expired" and followed.may_expire
    ):
        return
    shown = (
        work.shown(result["output"])
        if outcome == "succeeded"
        else (result["error"] or {}).get("code")
    )
    if (outcome, shown) != work.expected(seq):
        innocent = outcome == "failed" and work.expected(seq)[0] == "succeeded"
        wrong = f"{followed.job} {seq}: {line!r} for {work.text(seq)!r}"
        found.add(wrong, wrong=1, innocent_failed=innocent)


def _check_invariants(fleet: Fleet, found: Findings) -> None:
    engine = db.connect(fleet.database_url, pool_size=1, statement_timeout_s=600)
    try:
        with invariants.snapshot(engine) as tx:
            for each in invariants.INVARIANTS:
                for violation in invariants.violations(tx, each):
                    found.add(f"invariant {each.number} {each.name}: {violation}", violations=1)
    finally:
        engine.dispose()
