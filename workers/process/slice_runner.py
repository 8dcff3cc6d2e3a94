"""Slices of one worker, from claim to settlement: claim, feed the device, settle what finished."""

import logging
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import inf

from sqlalchemy import Engine as Database

from jobs import clock, ids
from jobs.models.model import Model
from jobs.models.pricing import Price
from jobs.states import PREPARE_POOL
from jobs.store.db import CONNECTION_ERRORS
from jobs.store.queue import claim, workers
from jobs.store.queue.claim import Lease
from workers.device.host import ClaimHost
from workers.device.monitoring import tracing
from workers.items import inputs
from workers.items.in_flight import ClaimedBatch, InFlightSlice
from workers.items.sources import InputSources
from workers.process.claiming import Claimer
from workers.process.preparation.settlement import PreparationSettlement
from workers.process.settlement import Settlement

_log = logging.getLogger(__name__)


class SliceRunner:
    """Runs the slices of one incarnation. Any thread may call `work`.

    hosts: those that serve now, by name@version; one leaves by `retire`, once it has no claims.
    price: what a model's use costs now; spot: the machine may be reclaimed."""

    def __init__(
        self,
        database: Database,
        hosts: Mapping[str, ClaimHost],
        incarnation: int,
        lease_s: float,
        sources: InputSources,
        pool: str = "default",
        price: Callable[[Model], Price] = lambda model: model.price,
        *,
        spot: bool = False,
    ) -> None:
        self._database, self._hosts = database, hosts
        self._incarnation, self._lease_s = incarnation, lease_s
        self._sources = sources
        self._claimer = Claimer(database, hosts, incarnation, lease_s, pool, spot=spot)
        kind = PreparationSettlement if pool == PREPARE_POOL else Settlement
        self.settlement: Settlement = kind(database, incarnation, sources, pool, price)
        self.drain_requested = False  # by an operator, as of the latest `renew`
        self._claiming = threading.Lock()  # each claim sees the room that the one before left
        self._preempting = threading.Lock()
        self._busy = threading.Event()  # something is in flight, or the worker closes
        self._closing = threading.Event()
        self._lock = threading.Lock()  # guards what is below
        self._in_flight: dict[InFlightSlice, ClaimHost] = {}  # in the order of their claims
        self._closed = self._loaded = False

    def work(self) -> bool:
        """Claims slices, and returns once they are settled; returns False if there were none."""
        batch = self._claim(self._claimer.claim)
        if batch is None:
            return False
        self._run(batch)
        return True

    def claim_preemptively(self) -> None:
        """Claims slices for under-served tenants just before the running launch ends, until the
        worker closes; for a few threads."""
        while not self._closed:
            with self._preempting:
                self._await_preemption()
                batch = self._claim(self._claimer.claim_preemptively)
            if batch:
                self._run(batch)

    def _claim(self, choose: Callable[[Sequence[Lease]], list[Lease]]) -> ClaimedBatch | None:
        with self._claiming:
            if self._closed:
                return None
            since_s = clock.monotonic()
            leases = choose([in_flight.lease for in_flight, _ in self._snapshot()])
            return self._begin(leases, since_s) if leases else None

    def _begin(self, leases: Sequence[Lease], since_s: float) -> ClaimedBatch:
        """Puts claimed slices in flight. since_s: start of their claim."""
        batch, host = ClaimedBatch(leases), self._hosts[leases[0].model]
        tracing.begin_slices(batch.slices, since_s)
        host.capacity.begin_claim(isolated=leases[0].suspect)
        host.capacity.add_inputs(sum(lease.inputs for lease in leases))
        with self._lock:
            self._in_flight.update(dict.fromkeys(batch.slices, host))
            self._busy.set()
        return batch

    def _run(self, batch: ClaimedBatch) -> None:
        """Feeds the device with the items of a claim, and settles its slices as they finish. After
        an error slices go back."""
        host = self._in_flight[batch.slices[0]]
        try:
            settle_ended = partial(self._settle_ended, host, batch)
            inputs.feed(
                self._database,
                self._sources,
                batch,
                host.model,
                host.submit,
                host.capacity.waiting,
                settle_ended,
            )
            while not batch.ended:
                settle_ended()
        except CONNECTION_ERRORS:
            raise
        except Exception:
            self._give_back([one for one in batch.slices if one in self._in_flight], host)
        finally:
            self._end(batch.slices, host)
            host.capacity.end_claim()

    def _settle_ended(self, host: ClaimHost, batch: ClaimedBatch, most_s: float = inf) -> None:
        """Waits up to `most_s` until slices finish, or outcomes of others are due; settles them."""
        finished = batch.wait(most_s)
        if finished:
            self._settle(host, [one for one in finished if not one.suspect])
            self._end(finished, host)
        elif finished is not None:
            self.settlement.record(host.model, batch)

    def _settle(self, host: ClaimHost, slices: Sequence[InFlightSlice]) -> None:
        """Settles slices; where that fails each by itself, so that one goes back alone."""
        try:
            if slices:
                self.settlement.settle(host.model, slices)
        except CONNECTION_ERRORS:
            raise
        except Exception:
            if len(slices) == 1:
                self._give_back(slices, host)
            else:
                for one in slices:
                    self._settle(host, [one])

    def _give_back(self, slices: Sequence[InFlightSlice], host: ClaimHost) -> None:
        """Ends slices at an error, and their leases: the keeper's next look frees them."""
        leases = [one.lease for one in slices if not one.suspect]
        named = ", ".join(f"{ids.show('job', one.job_id)} from {one.start}" for one in leases[:10])
        _log.exception("%d slices of %s go back: %s", len(leases), host.model.key, named)
        self._end(slices, host)  # `renew` prolongs them no more
        with self._database.begin() as tx:
            claim.renew(tx, leases, 0.0)

    def _end(self, slices: Sequence[InFlightSlice], host: ClaimHost) -> None:
        """Ends slices. One that isn't settled goes to another worker once its lease has expired."""
        tracing.drop_slices(slices)
        with self._lock:
            ended = [one for one in slices if self._in_flight.pop(one, None)]
            if not (self._in_flight or self._closed):
                self._busy.clear()
        for in_flight in ended:
            if not in_flight.finished:  # a finished one has nothing in the lanes
                host.release(in_flight)
        host.capacity.add_inputs(-sum(in_flight.lease.inputs for in_flight in ended))

    def _await_preemption(self) -> None:
        while not self._closed:
            self._busy.wait()
            delay_s, claim_then = self._claimer.preemption_delay_s()
            self._closing.wait(delay_s)
            if claim_then:
                return

    # -- heartbeat

    def renew(self) -> None:
        """Renews all leases; releases slices that lost their lease or whose job has ended."""
        slices = self._snapshot()
        with self._database.begin() as tx:
            self.drain_requested = workers.heartbeat(tx, self._incarnation, self.state)
            states = claim.renew(tx, [in_flight.lease for in_flight, _ in slices], self._lease_s)
            self._claimer.alternate_suspects(tx)
            self._claimer.look_for_others(tx)
        for in_flight, host in slices:
            key = in_flight.lease.job_id, in_flight.lease.start
            if states.get(key) not in ("queued", "running"):
                host.release(in_flight)

    def release_excess(self) -> None:
        """Releases slices for other workers: all but the oldest of models under backpressure, and
        those that turn out to take long; they are claimed again in parts."""
        by_capacity = {id(host.capacity): host for host in list(self._hosts.values())}
        for host in by_capacity.values():
            capacity, unfinished = host.capacity, self._unfinished(host)
            busy = capacity.check_backpressure()
            for n, in_flight in enumerate(unfinished):
                long = not in_flight.lease.suspect and capacity.takes_too_long(in_flight.pending)
                if (busy and n) or long:
                    host.release(in_flight)

    # -- state

    @property
    def state(self) -> str:
        """State of this worker, as the database has it."""
        return "draining" if self._closed else "ready" if self._loaded else "loading"

    def set_loading(self, *, loading: bool) -> None:
        """Tells whether a model is being loaded: suspects wait for its end."""
        self._claimer.loading = loading

    def mark_loaded(self) -> None:
        """Marks the worker ready: the models that it starts with are loaded."""
        self._loaded = True

    def in_flight_by_model(self) -> Counter[str]:
        """Returns the number of slices in flight, by name@version."""
        return Counter(in_flight.lease.model for in_flight, _ in self._snapshot())

    def retire(self, host: ClaimHost) -> None:
        """Claims nothing more for a model, and releases its slices."""
        with self._claiming:  # no claim is halfway
            host.drain()
        for in_flight in self._unfinished(host):
            host.release(in_flight)

    def close(self) -> None:
        """Claims nothing more; slices in flight go back after the launch they are in."""
        with self._lock:
            self._closed = True
            self._busy.set()
            self._closing.set()
        with self._claiming:  # a claim under way may not take what goes back
            in_flight_now = self._snapshot()
        for in_flight, host in in_flight_now:
            host.release(in_flight)

    def _unfinished(self, host: ClaimHost) -> list[InFlightSlice]:
        """Returns the slices of a model, and of its adapters, that may still be launched, the
        oldest first."""
        return [
            in_flight
            for in_flight, its_host in self._snapshot()
            if its_host.capacity is host.capacity and not (in_flight.released or in_flight.finished)
        ]

    def _snapshot(self) -> list[tuple[InFlightSlice, ClaimHost]]:
        with self._lock:
            return list(self._in_flight.items())
