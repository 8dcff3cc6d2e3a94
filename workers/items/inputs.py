"""Inputs of claimed slices, from their rows to the device: payloads are fetched from the blob
store, items that are lists are expanded; others come from elsewhere (workers/items/sources.py)."""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any

import orjson
from sqlalchemy import Engine as Database

from jobs import clock
from jobs.blobs.payloads import REFERENCE_MARK, Payloads
from jobs.errors import BlobStoreUnavailable
from jobs.intake import invalid_lines, validation
from jobs.intake.validation import is_address
from jobs.models.model import Model
from jobs.store.queue import checkpoints
from jobs.store.queue.claim import InputRow
from workers.engines.protocol import InvalidInput
from workers.items.in_flight import ClaimedBatch, InFlightSlice, ItemOutcome
from workers.items.retry import retry_while_away
from workers.items.sources import InputSources, read_rows
from workers.preparation.wire import PreparedItem

_log = logging.getLogger(__name__)
_FETCH_FOR_S = 5.0  # a slice goes back if the blob store is away for longer

_INDEX, _PARAMS = itemgetter(0), itemgetter(3)  # of a row
_TOGETHER = 128  # inputs of small slices that are submitted at once
_WAITING_BYTES = 128 << 20  # of inputs in the lanes, about, while the next addresses are fetched
_LOOK_AGAIN_S = 0.05  # while more wait

Submit = Callable[
    [Sequence[InFlightSlice], Sequence[int], Sequence[Any], Mapping[str, Any], Sequence[int]], None
]
"""Queues inputs of slices for the device: see `Host.submit`."""


def feed(
    database: Database,
    sources: InputSources,
    batch: ClaimedBatch,
    model: Model,
    submit: Submit,
    waiting: Callable[[], int] = lambda: 0,
    meanwhile: Callable[[float], None] = lambda seconds: None,
) -> None:
    """Reads the items of a claim that have no result yet, and submits them, those of small slices
    together.

    waiting: counts the inputs in the model's lanes; meanwhile: settles what has ended, and waits
    for that up to so many seconds; called between addresses, which take time to fetch.
    """
    with database.begin() as tx:
        leases = [in_flight.lease for in_flight in batch.slices]
        rows = read_rows(tx, model, leases)
        begun = checkpoints.read(tx, leases) if model.spec.generates else {}
    for (index, seq), progress in begun.items():
        batch.slices[index].checkpoints[seq] = progress
    by_index = {index: list(group) for index, group in groupby(rows, key=_INDEX)}
    for index, in_flight in enumerate(batch.slices):
        in_flight.expect(len(by_index.get(index, ())))
    give_up_s = clock.monotonic() + _FETCH_FOR_S
    queue = _Queue(model, sources, submit, waiting, meanwhile)
    for index, group in by_index.items():
        in_flight = batch.slices[index]
        prepared, rest = sources.take_prepared(database, model, in_flight, group)
        if _references(rest):
            queue.submit()  # it doesn't wait for the blob store
        fetched = fetch(sources.payloads, in_flight, rest, give_up_s)
        valid = _without_invalid_lines(in_flight, fetched)
        if prepared:
            queue.put_prepared(in_flight, [row for row in group if row[1] in prepared], prepared)
        queue.put(in_flight, valid)
    queue.submit()


def fetch(
    payloads: Payloads, in_flight: InFlightSlice, rows: Sequence[InputRow], give_up_s: float
) -> Sequence[InputRow]:
    """Replaces references in the rows of one slice by the payloads. An item whose payload is lost
    or corrupt fails here. Returns no rows while the store is away: the slice goes back."""
    places = _references(rows)
    if not places:
        return rows
    texts = [rows[place][2] for place in places]
    read = retry_while_away(
        lambda: payloads.read_all(texts),
        BlobStoreUnavailable,
        give_up_s,
        lambda error: _log.warning("%s", error),
        stopped=lambda: in_flight.released,
    )
    if read is None:
        in_flight.withdraw(len(rows))
        return []
    fetched = list(rows)
    lost = []
    for place, raw in zip(places, read, strict=True):
        index, seq, _, params, failures = rows[place]
        if isinstance(raw, bytes):
            fetched[place] = index, seq, raw.decode(), params, failures
        else:
            lost.append(ItemOutcome(seq, 0, 0.0, None, raw))
    if lost:
        in_flight.add(lost)
    lost_seqs = {outcome.seq for outcome in lost}
    return [row for row in fetched if row[1] not in lost_seqs]


def _without_invalid_lines(
    in_flight: InFlightSlice, rows: Sequence[InputRow]
) -> Sequence[InputRow]:
    """Returns the rows that hold inputs; items that stand for invalid lines fail here."""
    marked = [row for row in rows if row[2].startswith(invalid_lines.START)]
    messages = {row[1]: text for row in marked if (text := invalid_lines.message_of(row[2]))}
    if not messages:
        return rows
    in_flight.add(
        [ItemOutcome(seq, 0, 0.0, None, InvalidInput(text)) for seq, text in messages.items()]
    )
    return [row for row in rows if row[1] not in messages]


def _references(rows: Sequence[InputRow]) -> list[int]:
    """Returns the places of rows whose payload is in the blob store."""
    return [place for place, row in enumerate(rows) if row[2][0] == REFERENCE_MARK]


class _Queue:
    """Inputs with equal parameters, in the order of their slices, until they are submitted;
    addresses are fetched just before that."""

    def __init__(
        self,
        model: Model,
        sources: InputSources,
        submit: Submit,
        waiting: Callable[[], int],
        meanwhile: Callable[[float], None],
    ) -> None:
        self._model, self._sources, self._submit = model, sources, submit
        self._waiting, self._meanwhile = waiting, meanwhile
        self._fetcher = sources.fetcher if model.fetch else None
        self._params: tuple[str, str | None] = "{}", None  # JSON: of the job, of the items
        self._owners: list[InFlightSlice] = []
        self._seqs: list[int] = []
        self._inputs: list[Any] = []
        self._parts: list[int] = []
        self._addresses = 0  # of these inputs

    def put(self, in_flight: InFlightSlice, rows: Sequence[InputRow]) -> None:
        """Adds the rows of one slice. Submits what is enough, or has other parameters."""
        in_flight.failures |= {row[1]: orjson.loads(row[4]) for row in rows if row[4]}
        for same in self._by_params(in_flight, rows):
            seqs, values = [row[1] for row in same], [orjson.loads(row[2]) for row in same]
            if self._fetcher is None:
                self._add(in_flight, *expand_lists(self._model, in_flight, seqs, values))
                continue
            for seq, value in zip(seqs, values, strict=True):
                self._addresses += is_address(value)
                self._add(in_flight, *expand_lists(self._model, in_flight, [seq], [value]))
                if self._addresses >= self._fetcher.at_once:
                    self.submit()

    def put_prepared(
        self,
        in_flight: InFlightSlice,
        rows: Sequence[InputRow],
        prepared: Mapping[int, PreparedItem],
    ) -> None:
        """Adds rows of one slice whose inputs were prepared. prepared: by seq."""
        in_flight.failures |= {row[1]: orjson.loads(row[4]) for row in rows if row[4]}
        for same in self._by_params(in_flight, rows):
            for _, seq, *_ in same:
                inputs = prepared[seq].inputs
                if prepared[seq].is_list:
                    in_flight.expect_parts(seq, len(inputs))
                self._add(in_flight, [seq] * len(inputs), inputs, range(len(inputs)))

    def _by_params(
        self, in_flight: InFlightSlice, rows: Sequence[InputRow]
    ) -> Iterator[Sequence[InputRow]]:
        """Yields rows with equal parameters, once what has others is submitted."""
        for own_params, group in groupby(rows, key=_PARAMS):
            params = in_flight.lease.params, own_params
            if params != self._params:
                self.submit()
                self._params = params
            yield list(group)

    def _add(
        self,
        in_flight: InFlightSlice,
        seqs: Sequence[int],
        inputs: Sequence[Any],
        parts: Sequence[int],
    ) -> None:
        self._owners += [in_flight] * len(inputs)
        self._seqs += seqs
        self._inputs += inputs
        self._parts += parts or [0] * len(inputs)
        if len(self._owners) >= _TOGETHER:
            self.submit()

    def submit(self) -> None:
        """Submits what is there."""
        if self._addresses:
            self._fetch()
        if self._owners:
            of_job, own = self._params
            params = orjson.loads(of_job) | orjson.loads(own or "{}")
            self._submit(self._owners, self._seqs, self._inputs, params, self._parts)
            self._owners, self._seqs, self._inputs, self._parts = [], [], [], []
        self._addresses = 0

    def _fetch(self) -> None:
        """Fetches the addresses, once the lanes have room for what is there. What can't be fetched,
        and what goes back, leaves."""
        self._meanwhile(0.0)
        while self._lanes_are_full() and not all(owner.released for owner in self._owners):
            self._meanwhile(_LOOK_AGAIN_S)
        kept, self._inputs = self._sources.fetch(self._owners, self._seqs, self._inputs)
        self._owners = [self._owners[place] for place in kept]
        self._seqs = [self._seqs[place] for place in kept]
        self._parts = [self._parts[place] for place in kept]

    def _lanes_are_full(self) -> bool:
        """Returns True while the lanes hold about as many bytes as they may, and two launches."""
        assert self._fetcher is not None
        waiting = self._waiting()
        bytes_ = waiting * self._fetcher.item_bytes
        return waiting > 2 * self._model.limits.most_rows and bytes_ > _WAITING_BYTES


def expand_lists(
    model: Model, in_flight: InFlightSlice, seqs: Sequence[int], inputs: Sequence[Any]
) -> tuple[Sequence[int], Sequence[Any], Sequence[int]]:
    """Returns seq, input and position in its list of every input, as three columns; the third is
    empty where no item is a list. A list that the model rejects stays one input, and fails as one.
    """
    if list not in set(map(type, inputs)):
        return seqs, inputs, ()
    rows: list[tuple[int, Any, int]] = []
    for seq, value in zip(seqs, inputs, strict=True):
        inside = model.split_inputs(value)
        if inside is None or validation.refuse_input(model, value):
            rows.append((seq, value, 0))
        else:
            in_flight.expect_parts(seq, len(inside))
            rows += [(seq, one, part) for part, one in enumerate(inside)]
    return [row[0] for row in rows], [row[1] for row in rows], [row[2] for row in rows]
