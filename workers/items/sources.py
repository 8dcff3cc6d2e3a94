"""Inputs that don't stand in their rows: prepared by another worker, or behind an address. For
models that declare it."""

from collections import Counter
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
from workers.items.in_flight import InFlightSlice, ItemOutcome, end_together
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
            left = [(rows[0][0], *row[1:]) for row in again if row[1] in gone]
            in_flight.withdraw(len(gone) - len(left))  # another worker ended them meanwhile
            rest += left
        return found, rest

    def fetch(
        self, owners: Sequence[InFlightSlice], seqs: Sequence[int], values: Sequence[Any]
    ) -> tuple[list[int], list[Any]]:
        """Replaces inputs that are addresses by what is there; returns the places of the inputs
        that are left, and these inputs. owners: slice of each.

        An item whose address can't be fetched fails here. Inputs of a slice that goes back are
        left out, and not fetched.
        """
        assert self.fetcher is not None
        kept = [place for place, owner in enumerate(owners) if not owner.released]
        for owner, count in (Counter(owners) - Counter(owners[place] for place in kept)).items():
            owner.withdraw(count)
        addresses = [
            place
            for place in kept
            if is_address(values[place]) and seqs[place] not in owners[place].lists
        ]
        found = self.fetcher.fetch([(values[at], owners[at].lease.tenant) for at in addresses])
        fetched = dict(zip(addresses, found, strict=True))
        failed = {at: one for at, one in fetched.items() if isinstance(one, Exception)}
        end_together(
            [(owners[at], ItemOutcome(seqs[at], 0, 0.0, None, one)) for at, one in failed.items()]
        )
        left = [place for place in kept if place not in failed]
        return left, [fetched.get(place, values[place]) for place in left]


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
