"""Checkpoints: output so far of items that are being generated, from which another worker goes on.

A worker adds what all its items have emitted since the last time, fenced by their leases. Rows of a
choice follow one another by position. They go with the result of their item.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any
from uuid import UUID

import orjson
from sqlalchemy import Row, select, text

from jobs.store.db import Tx
from jobs.store.queue.claim import Lease, lock_held
from jobs.store.tables import checkpoints


@dataclass(frozen=True, slots=True)
class Piece:
    """Output of one choice of an item since its last checkpoint."""

    job_id: UUID  #: job of the item
    seq: int  #: place of the item in its job, from 0
    choice: int  #: index of the choice
    position: int  #: of the first of the tokens in its choice, from 0
    tenant: str  #: tenant of the job
    tokens: Sequence[int]  #: ids
    text: str  #: final text, without NUL
    #: JSON: [token, text, logprob, top] for each token; a token is its id or, with what older
    #: releases pass over, a list (workers/generation/items/checkpoints.py)
    logprobs: str | None = None
    finish_reason: str | None = None  #: of a choice that has ended
    stopped_by: str | None = None  #: stop string that ended it
    cached_tokens: int = 0  #: of the prompt, in the first piece of a choice
    device_us: int = (
        0  #: device time of the item since the last checkpoint, in one of its pieces, µs
    )


@dataclass(slots=True)
class ChoiceProgress:
    """Output of one choice so far."""

    choice: int  #: index of the choice
    tokens: list[int] = field(default_factory=list)  #: ids
    text: str = ""  #: final text; the text of the last tokens may still be held back
    logprobs: list[Any] = field(default_factory=list)  #: see Piece
    finish_reason: str | None = None  #: of a choice that has ended
    stopped_by: str | None = None  #: stop string that ended it
    cached_tokens: int = 0  #: of the prompt


@dataclass(slots=True)
class Progress:
    """Output of an item so far."""

    choices: list[ChoiceProgress] = field(default_factory=list)  #: that have begun, by index
    device_us: int = 0  #: device time that it took, µs

    def _add(self, row: Row[Any]) -> None:
        if not (self.choices and self.choices[-1].choice == row.choice):
            self.choices.append(ChoiceProgress(row.choice))
        its = self.choices[-1]
        its.tokens += row.tokens
        its.text += row.text
        its.logprobs += orjson.loads(row.logprobs or "[]")
        its.finish_reason, its.stopped_by = row.finish_reason, row.stopped_by
        its.cached_tokens += row.cached_tokens
        self.device_us += row.device_us


# Written out, as the other statements of a settlement: arrays of pieces. A piece whose commit was
# not acknowledged is offered again, with what came since. None is added to an item that has ended:
# the locked slice shows its result.
_INSERT = text("""
    INSERT INTO checkpoints (job_id, seq, choice, position, tenant_id, tokens, text, logprobs,
                             finish_reason, stopped_by, cached_tokens, device_us)
    SELECT job_id, seq, choice, position, tenant_id, CAST(tokens AS int[]), text, logprobs,
           finish_reason, stopped_by, cached_tokens, device_us
    FROM unnest(CAST(:job_id AS uuid[]), CAST(:seq AS int[]), CAST(:choice AS int[]),
                CAST(:position AS int[]), CAST(:tenant AS text[]), CAST(:tokens AS text[]),
                CAST(:text AS text[]), CAST(:logprobs AS text[]), CAST(:finish_reason AS text[]),
                CAST(:stopped_by AS text[]), CAST(:cached_tokens AS int[]),
                CAST(:device_us AS bigint[]))
             AS p (job_id, seq, choice, position, tenant_id, tokens, text, logprobs, finish_reason,
                   stopped_by, cached_tokens, device_us)
    WHERE NOT EXISTS (SELECT FROM results r WHERE r.job_id = p.job_id AND r.seq = p.seq)
    ON CONFLICT (job_id, seq, choice, position) DO UPDATE
    SET tokens = excluded.tokens, text = excluded.text, logprobs = excluded.logprobs,
        finish_reason = excluded.finish_reason, stopped_by = excluded.stopped_by,
        cached_tokens = excluded.cached_tokens, device_us = excluded.device_us
""")


def write(tx: Tx, leases: Sequence[Lease], pieces: Sequence[Piece]) -> int:
    """Adds pieces of items in slices whose leases are still held; returns the number of these
    leases."""
    held = lock_held(tx, leases)
    insert(tx, [lease for lease in leases if (lease.job_id, lease.start) in held], pieces)
    return len(held)


def insert(tx: Tx, held: Sequence[Lease], pieces: Sequence[Piece]) -> None:
    """Adds pieces of items in slices that the caller has locked."""
    mine = [piece for piece in pieces if any(_covers(lease, piece) for lease in held)]
    if not mine:
        return
    values: dict[str, list[Any]] = {
        each.name: [getattr(piece, each.name) for piece in mine] for each in fields(Piece)
    }
    values["tokens"] = [f"{{{','.join(map(str, piece.tokens))}}}" for piece in mine]
    tx.execute(_INSERT, values)


def _covers(lease: Lease, piece: Piece) -> bool:
    return lease.job_id == piece.job_id and lease.start <= piece.seq < lease.stop


_DELETE_ENDED = text("""
    DELETE FROM checkpoints c
    USING unnest(CAST(:jobs AS uuid[]), CAST(:starts AS int[])) AS mine (job_id, start)
    JOIN slices s USING (job_id, start)
    WHERE c.job_id = s.job_id AND c.seq >= s.start AND c.seq < s.stop
      AND EXISTS (SELECT FROM results r WHERE r.job_id = c.job_id AND r.seq = c.seq)
""")


def delete_ended(tx: Tx, slices: Collection[tuple[UUID, int]]) -> None:
    """Deletes checkpoints of items that have a result, in slices that the caller has locked."""
    values = {"jobs": [job for job, _ in slices], "starts": [start for _, start in slices]}
    tx.execute(_DELETE_ENDED, values)


_READ = text("""
    SELECT s.n, c.* FROM unnest(CAST(:jobs AS uuid[]), CAST(:starts AS int[]),
                                CAST(:stops AS int[]))
                             WITH ORDINALITY AS s (job_id, start, stop, n)
    JOIN checkpoints c ON c.job_id = s.job_id AND c.seq >= s.start AND c.seq < s.stop
    ORDER BY s.n, c.seq, c.choice, c.position
""")


def read(tx: Tx, leases: Sequence[Lease]) -> Mapping[tuple[int, int], Progress]:
    """Returns the output so far of items, by the index of their lease and their seq."""
    values = {
        "jobs": [lease.job_id for lease in leases],
        "starts": [lease.start for lease in leases],
        "stops": [lease.stop for lease in leases],
    }
    found: dict[tuple[int, int], Progress] = {}
    for row in tx.execute(_READ, values):
        found.setdefault((row.n - 1, row.seq), Progress())._add(row)
    return found


def read_item(tx: Tx, job: UUID, seq: int) -> Progress | None:
    """Returns the output so far of one item; None where it has not begun, or has ended.

    From one read to the next tokens and text only grow, whichever worker runs the item.
    """
    c = checkpoints.c
    query = select(checkpoints).where(c.job_id == job, c.seq == seq)
    rows = tx.execute(query.order_by(c.choice, c.position)).all()
    if not rows:
        return None
    progress = Progress()
    for row in rows:
        progress._add(row)
    return progress
