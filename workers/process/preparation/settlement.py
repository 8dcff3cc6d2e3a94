"""Settlement of slices that were prepared: prepared inputs go to Redis or the blob store, their
places to the database, and the slices pass on to the queue of their model."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from redis import RedisError

from jobs import clock
from jobs.blobs.payloads import REFERENCE_MARK
from jobs.errors import BlobStoreUnavailable
from jobs.models.model import Model, PreparationModel
from jobs.store import prepared
from jobs.store.prepared import PreparedRow
from jobs.store.queue.checkpoints import Piece
from jobs.store.queue.claim import Lease
from jobs.telemetry.metrics import preparation as metrics
from workers.device.monitoring import launch_metrics
from workers.engines.protocol import Permanent, Prepared
from workers.items.in_flight import InFlightSlice, ItemOutcome
from workers.items.results import ListOutput, join_lists
from workers.items.retry import retry_while_away
from workers.preparation import wire
from workers.preparation.wire import PreparedItem
from workers.process.settlement import Settlement, to_rows

_log = logging.getLogger(__name__)
_AWAY = (RedisError, BlobStoreUnavailable)


@dataclass(slots=True)
class _Sorted:
    """Outcomes of some slices, by what becomes of them."""

    failed: list[InFlightSlice] = field(default_factory=list)  #: with outcomes that are results
    ended: list[tuple[Lease, ItemOutcome]] = field(default_factory=list)  #: prepared
    raws: list[bytes] = field(default_factory=list)  #: bytes of each of these


class PreparationSettlement(Settlement):
    """Settles slices that were prepared; those of a worker of the pool `prepare`."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.item_bytes: dict[str, float] = {}  #: of a prepared input, lately, by name@version

    def _store(
        self,
        model: Model,
        slices: Sequence[InFlightSlice],
        progress: Sequence[Piece] | None,
        give_up_s: float,
    ) -> int | None:
        """Implements `Settlement._store`: None also where Redis was away."""
        assert isinstance(model, PreparationModel)
        base, store = model.base, self._sources.prepared
        assert store is not None
        its = _sort(slices, base)
        puts = [
            (lease.job_id, one.seq, raw)
            for (lease, one), raw in zip(its.ended, its.raws, strict=True)
        ]
        places = retry_while_away(
            partial(store.put, puts), _AWAY, give_up_s,
            lambda error: _log.warning("can't store %d prepared inputs yet: %s", len(puts), error),
        )  # fmt: skip
        if places is None:
            return None
        rows = [
            PreparedRow(lease.job_id, one.seq, lease.tenant, place, one.device_us)
            for (lease, one), place in zip(its.ended, places, strict=True)
        ]
        results, attempts = to_rows(its.failed, model.limits)
        write: Callable[..., int] = partial(prepared.record, version=base.version)
        if progress is not None:
            write = partial(prepared.settle, version=base.version, pool=self._pool)
        leases, since_s = [one.lease for one in its.failed], clock.monotonic()
        held = self._write_until(give_up_s, write, leases, rows, results, attempts)
        if held is not None:
            took_s = clock.monotonic() - since_s
            launch_metrics.record_settlement(its.failed, results, attempts, took_s, held)
            self._count(base.key, rows, its.raws)
        return held

    def _count(self, model: str, rows: Sequence[PreparedRow], raws: Sequence[bytes]) -> None:
        sizes: dict[str, list[int]] = {}
        for row, raw in zip(rows, raws, strict=True):
            store = "blobs" if row.place.startswith(REFERENCE_MARK) else "redis"
            sizes.setdefault(store, []).append(len(raw))
        for store, its in sizes.items():
            metrics.stored(model, store, len(its), sum(its))
        if raws:
            self.item_bytes[model] = sum(map(len, raws)) / len(raws)


def _sort(slices: Sequence[InFlightSlice], base: Model) -> _Sorted:
    """Sorts outcomes of slices; their leases are named after the model itself from here on."""
    its = _Sorted()
    for in_flight in slices:
        lease = replace(in_flight.lease, model=base.key)
        failed, lists = list[ItemOutcome](), dict[int, int]()
        for one in join_lists(in_flight):
            item = _prepared(one)
            if isinstance(item, BaseException):
                failed.append(replace(one, output=item))
                if item is one.output and one.seq in in_flight.lists:  # `part` names its input
                    lists[one.seq] = 1
                continue
            its.ended.append((lease, one))
            its.raws.append(item)
        # Not finished: what is left to do with it is done elsewhere. Lists are joined already.
        its.failed.append(
            replace(in_flight, lease=lease, outcomes=failed, lists=lists, finished=False)
        )
    return its


def _prepared(one: ItemOutcome) -> bytes | BaseException:
    """Returns what was prepared of an item as bytes, or why it fails."""
    output = one.output
    if isinstance(output, BaseException):
        return output
    is_list = isinstance(output, ListOutput)
    inputs = output if is_list else [output]
    if not all(isinstance(each, Prepared) for each in inputs):
        return Permanent(f"`prepare` returned a {type(output).__name__}, which is no Prepared")
    try:
        return wire.dumps(PreparedItem(inputs, is_list))
    except wire.Unsendable as error:
        return Permanent(str(error))
