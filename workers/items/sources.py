"""Inputs that don't stand in their rows: prepared by another worker, or behind an address. For
models that declare it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Engine as Database

from jobs.blobs.payloads import Payloads
from jobs.intake.validation import is_address
from jobs.models.model import Model, PreparationModel
from jobs.store import prepared
from jobs.store.db import Tx
from jobs.store.queue import claim
from jobs.store.queue.claim import InputRow, Lease
from jobs.telemetry.metrics import preparation as metrics
from workers.items.in_flight import InFlightSlice, ItemOutcome
from workers.preparation import wire
from workers.preparation.fetch import Fetcher
from workers.preparation.store import PreparedStore
from workers.preparation.wire import PreparedItem


@dataclass(frozen=True, slots=True)
class InputSources:
    """Sources of a worker's inputs.

    payloads: long ones; prepared: those that other workers prepared; fetcher: of addresses. Without
    the latter two a worker runs no model that asks for them.
    """

    payloads: Payloads
    prepared: PreparedStore | None = None
    fetcher: Fetcher | None = None

    def take_prepared(
        self, database: Database, model: Model, in_flight: InFlightSlice, rows: Sequence[InputRow]
    ) -> tuple[dict[int, PreparedItem], Sequence[InputRow]]:
        """Returns the prepared inputs of one slice by seq, and the rows of the others, which this
        worker prepares itself: those that are gone have their inputs in them. rows: as `read_rows`
        returned them."""
        if model.prepare != "pool" or self.prepared is None:
            return {}, rows
        places = {row[1]: row[2][1:] for row in rows if row[2].startswith(prepared.MARK)}
        found = dict[int, PreparedItem]()
        raws = self.prepared.read(list(places.values()))
        for seq, raw in zip(places, raws, strict=True):
            if raw is not None and (item := _read(raw)):
                found[seq] = item
        metrics.taken(model.key, len(found), len(rows) - len(found))
        rest = [row for row in rows if row[1] not in places]
        if gone := places.keys() - found.keys():
            with database.begin() as tx:
                again = claim.read_inputs(tx, [in_flight.lease])
            rest += [(rows[0][0], *row[1:]) for row in again if row[1] in gone]
        return found, rest

    def fetch(
        self, in_flight: InFlightSlice, seqs: Sequence[int], values: Sequence[Any]
    ) -> tuple[list[int], list[Any]]:
        """Replaces inputs of one slice that are addresses by what is there; returns seqs and
        inputs. An item whose address can't be fetched fails here."""
        places = [place for place, value in enumerate(values) if is_address(value)]
        if not places or self.fetcher is None:
            return list(seqs), list(values)
        tenant = in_flight.lease.tenant
        fetched = list(values)
        failed = dict[int, ItemOutcome]()
        answers = self.fetcher.fetch([(values[place], tenant) for place in places])
        for place, answer in zip(places, answers, strict=True):
            fetched[place] = answer
            if isinstance(answer, Exception):
                failed[place] = ItemOutcome(seqs[place], 0, 0.0, None, answer)
        if failed:
            in_flight.add(list(failed.values()))
        kept = [place for place in range(len(values)) if place not in failed]
        return [seqs[place] for place in kept], [fetched[place] for place in kept]


def read_rows(tx: Tx, model: Model, leases: Sequence[Lease]) -> list[InputRow]:
    """Reads the items of leases without a result: for a preparation those that are to be prepared
    still; for a model that has one, with places of prepared inputs."""
    if isinstance(model, PreparationModel):
        return prepared.read_unprepared(tx, leases, model.base.version)
    if model.prepare == "pool":
        return prepared.read_inputs(tx, leases, model.version)
    return claim.read_inputs(tx, leases)


def _read(raw: bytes) -> PreparedItem | None:
    """Returns prepared inputs; None where they are broken, or of another release."""
    try:
        return wire.loads(raw)
    except wire.Unreadable:
        return None
