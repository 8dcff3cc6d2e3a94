"""What a nudge sets going: claim slices, feed the device, settle what finished."""

import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby

import orjson
from sqlalchemy import Engine as Database

from jobs import clock, ids
from jobs.blobs.payloads import Payloads
from jobs.models.model import Model
from jobs.models.pricing import Price
from jobs.store.db import CONNECTION_ERRORS
from jobs.store.queue import backlog, claim, settle, workers
from jobs.store.queue.claim import InputRow, Lease, PreemptiveClaim
from jobs.store.queue.settle import Attempt, Result
from jobs.store.queue.workers import LaunchRow
from jobs.telemetry import logs
from jobs.telemetry.metrics import record
from workers.device.model_host import ModelHost
from workers.device.monitoring import launch_metrics, tracing
from workers.items import payloads
from workers.items import results as recorder
from workers.items.in_flight import ClaimedBatch, InFlightSlice
from workers.items.list_inputs import taken_apart
from workers.scheduler.entries import Launch

_log = logging.getLogger(__name__)
_RECORD_FOR_S = 60.0  # how long results are offered to a database that is away

_CLAIM_S = 0.03  # from a look for guests to their items in their lane
_LOOK_S = 0.05  # between two looks for guests, where launches are short
_NEXT_S = 0.005  # after a launch was to end the next one has begun

_FETCH_FOR_S = 5.0  # how long a blob store that is away is asked for inputs


class SliceRunner:
    """The slices of one incarnation, from claim to settlement. Any thread may call `work`. hosts:
    those that there are now; one leaves by `retire`, once it is not busy any more. price: what a
    model's use costs now."""

    def __init__(
        self,
        database: Database,
        hosts: Mapping[str, ModelHost],
        incarnation: int,
        lease_s: float,
        stored: Payloads,
        pool: str = "default",
        price: Callable[[Model], Price] = lambda model: model.price,
    ) -> None:
        self._database, self._hosts = database, hosts
        self._incarnation, self._lease_s = incarnation, lease_s
        self._payloads, self._pool, self._price = stored, pool, price
        self.asked_to_drain = False  # as of the last `renew`
        self._turn = 0  # whose slices are claimed next
        self._claiming = threading.Lock()
        self._welcoming = threading.Lock()
        self._busy = threading.Event()  # something is in hand
        self._closing = threading.Event()  # nobody is to wait for a launch any more
        self._lock = threading.Lock()  # guards what is below
        self._held: dict[InFlightSlice, ModelHost] = {}  # in the order they were claimed
        self._closed = self._loaded = False
        self._suspects_turn = False
        self._launches: list[LaunchRow] = []
        self._launch_number = incarnation << 32

    def work(self) -> bool:
        """Runs what one claim gives. Returns whether there was anything."""
        claimed = self._claim()
        if claimed is None:
            return False
        self._see_through(claimed)
        return True

    def claim_preemptively(self) -> None:
        """Where a worker is full of work, others need not wait for the end of it: those who are
        owed are let in as guests. Goes on until the worker drains; for a few threads."""
        while not self._closed:
            with self._welcoming:
                self._await_guests()
                claimed = None if self._closed else self._claim_guests()
            if claimed:
                self._see_through(claimed)

    def _see_through(self, claimed: ClaimedBatch) -> None:
        host = self._held[claimed.holdings[0]]
        try:
            self._feed(claimed)
            while finished := claimed.wait():
                since_s = clock.monotonic()
                tracing.settled(finished, since_s, self._settle(finished))
                self._let_go(finished)
        finally:
            self._let_go(claimed.holdings)
            host.leave()

    def renew(self) -> None:
        """Prolongs all leases; takes back slices whose lease or whose job is gone."""
        held = self._snapshot()
        with self._database.begin() as tx:
            self.asked_to_drain = workers.heartbeat(tx, self._incarnation, self.state)
            states = claim.renew(tx, [holding.lease for holding, _ in held], self._lease_s)
            models = [host.model for host in list(self._hosts.values())]
            self._suspects_turn = not self._suspects_turn and backlog.suspects_wait(tx, models)
        for holding, host in held:
            key = holding.lease.job_id, holding.lease.start
            if states.get(key) not in ("queued", "running"):
                host.release(holding)

    @property
    def state(self) -> str:
        """Of this worker, in the database's words."""
        return "draining" if self._closed else "ready" if self._loaded else "loading"

    def loaded(self) -> None:
        """The models that it starts with are there."""
        self._loaded = True

    def release_excess(self) -> None:
        """Where calls keep the device, slices but for the oldest go to who has time for them."""
        for host in list(self._hosts.values()):
            if host.under_backpressure():
                for holding in self._in_hand(host)[1:]:
                    host.release(holding)

    def retire(self, host: ModelHost) -> None:
        """Claims nothing more for this model, and gives back what it has in hand of it."""
        with self._claiming:  # none is halfway through a claim
            host.drain()
        for holding in self._in_hand(host):
            host.release(holding)

    def close(self) -> None:
        """Claims nothing more; slices in hand go back after the launch they are in."""
        with self._lock:
            self._closed = True
            self._busy.set()  # whoever waits for it is to leave
            self._closing.set()
        for holding, host in self._snapshot():
            host.release(holding)

    def record_launch(self, model: Model, launch: Launch) -> int:
        """Keeps a launch for the next transaction; returns its id."""
        age_s = clock.monotonic() - launch.started_s
        with self._lock:
            self._launch_number += 1
            row = LaunchRow(
                id=self._launch_number,
                incarnation=self._incarnation,
                model=model.name,
                version=model.version,
                bucket=launch.bucket,
                reason=launch.reason,
                items=len(launch.items),
                calls=len(launch.calls),
                units=launch.units,
                padded_units=launch.padded_units,
                predicted_ms=launch.predicted_s * 1000,
                engine_ms=launch.engine_s * 1000,
                started_at=clock.ago(age_s),
                batch_ms=(launch.started_s - launch.closed_s) * 1000,
            )
            self._launches.append(row)
        return row.id

    def in_hand(self) -> Counter[str]:
        """Slices that there are leases for, by name@version."""
        return Counter(holding.lease.model for holding, _ in self._snapshot())

    def _claim(self) -> ClaimedBatch | None:
        """One at a time: each sees the room that the one before left."""
        with self._claiming:
            since_s = clock.monotonic()
            claimed = self._take_in_hand(self._next_leases(), since_s)
        if self._closed:  # while it was claimed
            self.close()
        return claimed

    def _claim_guests(self) -> ClaimedBatch | None:
        with self._claiming:
            since_s = clock.monotonic()
            hosts = {host: host.guest_room() for host in list(self._hosts.values())}
            guests = PreemptiveClaim([holding.lease for holding, _ in self._snapshot()])
            if any(lease.suspect for lease in guests.in_hand):
                return None
            claimed = self._take_in_hand(self._claim_for(hosts, guests), since_s)
        if self._closed:
            self.close()
        return claimed

    def _await_guests(self) -> None:
        """Until just before the end of a launch, where more is in hand than the next can take: then
        it is known which worker is free first. Where launches are short, for a moment."""
        while not self._closed:
            self._busy.wait()
            ends = [host.launch_ends() for host in list(self._hosts.values()) if host.guest_room()]
            left_s, took_s = min(ends, default=(0.0, 0.0))
            if took_s < 2 * _CLAIM_S:
                self._closing.wait(_LOOK_S)
                return
            if left_s > _CLAIM_S:
                self._closing.wait(left_s - _CLAIM_S)
                return
            self._closing.wait(left_s + _NEXT_S)  # too late for the one that is next

    def _take_in_hand(self, leases: Sequence[Lease], since_s: float) -> ClaimedBatch | None:
        """since_s: when their claim began."""
        if not leases:
            return None
        claimed, host = ClaimedBatch(leases), self._hosts[leases[0].model]
        tracing.claimed(claimed.holdings, since_s)
        host.enter(alone=leases[0].suspect)
        for holding in claimed.holdings:
            host.hold(holding.lease.inputs)
        with self._lock:
            self._held.update(dict.fromkeys(claimed.holdings, host))
            self._busy.set()
        return claimed

    def _next_leases(self) -> list[Lease]:
        """The usual work, and nothing beside a suspect. Suspects come when there is nothing else,
        or in turns with it: what kills workers must not stop the rest, nor wait for ever."""
        held = self._snapshot()
        if any(holding.lease.suspect for holding, _ in held):
            return []
        if self._suspects_turn:
            if held or (suspect := self._claim_suspect()):
                return [] if held else suspect
            self._suspects_turn = False
        return self._claim_in_turn() or ([] if held else self._claim_suspect())

    def _claim_suspect(self) -> list[Lease]:
        for host in list(self._hosts.values()):
            if host.room():
                since_s = clock.monotonic()
                with self._database.begin() as tx:
                    leases = claim.claim_suspect(tx, self._incarnation, host.model, self._lease_s)
                record.claim(clock.monotonic() - since_s, host.model.key, len(leases), True)
                if leases:
                    return leases
        return []

    def _claim_in_turn(self) -> list[Lease]:
        """Of one model, so that nobody waits with a quick one's slices for a slow one's."""
        return self._claim_for({host: host.room() for host in self._in_turn()})

    def _claim_for(
        self, rooms: Mapping[ModelHost, int], guests: PreemptiveClaim | None = None
    ) -> list[Lease]:
        if not any(rooms.values()):
            return []
        since_s = clock.monotonic()
        with self._database.begin() as tx:
            leases = claim.claim(
                tx,
                self._incarnation,
                {host.model: room for host, room in rooms.items()},
                self._lease_s,
                pool=self._pool,
                item_ms={host.model: host.item_ms() for host in rooms},
                preemptive=guests,
            )
        model = leases[0].model if leases else ""
        record.claim(clock.monotonic() - since_s, model, len(leases), False)
        return leases

    def _in_turn(self) -> Iterator[ModelHost]:
        """Where tenants are owed alike, the first."""
        hosts = list(self._hosts.values())
        self._turn += 1
        for n in range(len(hosts)):
            yield hosts[(self._turn + n) % len(hosts)]

    def _feed(self, claimed: ClaimedBatch) -> None:
        """Reads the items that have no result yet, and queues them as they are prepared."""
        with self._database.begin() as tx:
            rows = claim.read_inputs(tx, [holding.lease for holding in claimed.holdings])
        found = {index: list(group) for index, group in groupby(rows, key=lambda row: row[0])}
        for index, holding in enumerate(claimed.holdings):
            holding.expect(len(found.get(index, ())))
        give_up_s = clock.monotonic() + _FETCH_FOR_S
        for index, group in found.items():
            holding = claimed.holdings[index]
            self._submit(holding, payloads.fetch(self._payloads, holding, group, give_up_s))

    def _submit(self, holding: InFlightSlice, rows: Sequence[InputRow]) -> None:
        """Rows of one slice; those with parameters of their own apart."""
        holding.failures = {row[1]: orjson.loads(row[4]) for row in rows if row[4]}
        job_params = orjson.loads(holding.lease.params)
        for own_params, group in groupby(rows, key=lambda row: row[3]):
            params = job_params | orjson.loads(own_params) if own_params else job_params
            same = list(group)
            host = self._host(holding)
            seqs, inputs, parts = taken_apart(
                host.model,
                holding,
                [row[1] for row in same],
                [orjson.loads(row[2]) for row in same],
            )
            host.submit(holding, seqs, inputs, params, parts)

    def _settle(self, finished: Sequence[InFlightSlice]) -> int:
        """Records; while the database is away, again and again: the fence keeps it right. Returns
        how many of them were still ours."""
        leases = [holding.lease for holding in finished]
        give_up_s, pause_s = clock.monotonic() + _RECORD_FOR_S, 0.1
        computed, attempts = self._rows(finished)
        results = payloads.stash(self._payloads, computed, give_up_s)
        if results is None:
            return 0
        models = {self._host(holding).model for holding in finished}
        prices = {model.key: self._price(model) for model in models}
        since_s = clock.monotonic()
        while (settled := self._record(leases, results, attempts, prices)) is None:
            if clock.monotonic() > give_up_s:
                return 0
            clock.sleep(pause_s)
            pause_s = min(2 * pause_s, 2.0)
        launch_metrics.settled(finished, results, attempts, clock.monotonic() - since_s, settled)
        if settled < len(leases):
            with logs.about(**_about(leases)):
                _log.warning("%d of %d leases had been lost", len(leases) - settled, len(leases))
        return settled

    def _rows(self, finished: Sequence[InFlightSlice]) -> tuple[list[Result], list[Attempt]]:
        results: list[Result] = []
        attempts: list[Attempt] = []
        for holding in finished:
            ended, failed = recorder.rows(holding, self._host(holding).model.limits)
            results += ended
            attempts += failed
        return results, attempts

    def _record(
        self,
        leases: Sequence[Lease],
        results: Sequence[Result],
        attempts: Sequence[Attempt],
        prices: Mapping[str, Price],
    ) -> int | None:
        with self._lock:
            launches, self._launches = self._launches, []
        try:
            with self._database.begin() as tx:
                workers.insert_launches(tx, launches)
                return settle.settle(tx, leases, results, attempts, prices, pool=self._pool)
        except CONNECTION_ERRORS as error:
            with logs.about(**_about(leases)):
                _log.warning("can't record %d results yet: %s", len(results), error)
            with self._lock:
                self._launches += launches
            return None

    def _let_go(self, holdings: Sequence[InFlightSlice]) -> None:
        tracing.let_go(holdings)
        with self._lock:
            held = [(h, self._held.pop(h)) for h in holdings if h in self._held]
            if not (self._held or self._closed):
                self._busy.clear()
        for holding, host in held:
            host.release(holding)
            host.hold(-holding.lease.inputs)

    def _host(self, holding: InFlightSlice) -> ModelHost:
        return self._held[holding]

    def _in_hand(self, host: ModelHost) -> list[InFlightSlice]:
        """What may still be launched of a model, the oldest first."""
        return [
            holding
            for holding, its in self._snapshot()
            if its is host and not (holding.released or holding.finished)
        ]

    def _snapshot(self) -> list[tuple[InFlightSlice, ModelHost]]:
        with self._lock:
            return list(self._held.items())


def _about(leases: Sequence[Lease]) -> dict[str, str]:
    """Whose they are, where that is one job's."""
    if len({lease.job_id for lease in leases}) > 1:
        return {}
    return {"job_id": ids.show("job", leases[0].job_id), "tenant": leases[0].tenant}
