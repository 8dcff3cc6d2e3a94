"""Claims for one worker: which slices are claimed next, and when for under-served tenants."""

from collections.abc import Collection, Iterator, Mapping, Sequence

from sqlalchemy import Engine as Database

from jobs import clock
from jobs.store.db import Tx
from jobs.store.queue import backlog, claim, split, workers
from jobs.store.queue.claim import Lease, PreemptiveClaim
from jobs.telemetry.metrics import record
from workers.device.host import ClaimHost

_CLAIM_S = 0.03  # from the start of a preemptive claim until its items are in their lane
_POLL_S = 0.05  # between two preemptive claims, where launches are short
_CUT_ABOVE = 1.5  # times the inputs that a slice should have
_NEXT_LAUNCH_S = 0.005  # after a launch was to end, the next one has begun


class Claimer:
    """Chooses and claims slices for the hosts of one worker; one claim at a time.

    spot: its machine may be reclaimed."""

    def __init__(
        self,
        database: Database,
        hosts: Mapping[str, ClaimHost],
        incarnation: int,
        lease_s: float,
        pool: str,
        *,
        spot: bool = False,
    ) -> None:
        self._database, self._hosts, self._pool = database, hosts, pool
        self._incarnation, self._lease_s = incarnation, lease_s
        self._turn = 0  # of the host that is first
        self._suspects_turn = False  # nothing else is claimed until what is in flight has ended
        self._others_turn = False  # for one heartbeat after that
        #: Of a spot worker: models that nobody else is ready for. Of the others it leaves jobs that
        #: aren't to be interrupted.
        self._lone: Collection[str] | None = () if spot else None
        self.loading = False  #: while a model is loaded no suspect runs: which one kills is unclear

    def claim(self, in_flight: Sequence[Lease]) -> list[Lease]:
        """Claims the next slices, or a suspect, which runs alone: when there is nothing else, or in
        turn with the rest. What kills workers must not stop the others, nor wait for ever: its turn
        lasts until it was claimed, however long what is in flight takes."""
        if any(lease.suspect for lease in in_flight):
            return []
        if self._suspects_turn:
            if in_flight:
                return []
            self._suspects_turn, self._others_turn = False, True
            if suspect := self._claim_suspect():
                return suspect
        rooms = {host: host.capacity.room() for host in self._rotated_hosts()}
        return self._claim(rooms) or ([] if in_flight else self._claim_suspect())

    def claim_preemptively(self, in_flight: Sequence[Lease]) -> list[Lease]:
        """Claims slices that should not wait for those in flight: of tenants that had less, or of
        higher priority."""
        if self._suspects_turn or any(lease.suspect for lease in in_flight):
            return []
        rooms = {host: host.capacity.preemptive_room() for host in list(self._hosts.values())}
        return self._claim(rooms, PreemptiveClaim(in_flight))

    def preemption_delay_s(self) -> tuple[float, bool]:
        """Returns the seconds to wait, and whether to claim preemptively then.

        The time is just before a launch ends, where more is in flight than the next launch takes:
        then it is known which worker is free first. Short launches are polled instead."""
        hosts = [host for host in list(self._hosts.values()) if host.capacity.preemptive_room()]
        ends = [host.capacity.next_launch_end() for host in hosts]
        left_s, duration_s = min(ends, default=(0.0, 0.0))
        if duration_s < 2 * _CLAIM_S:
            return _POLL_S, True
        if left_s > _CLAIM_S:
            return left_s - _CLAIM_S, True
        return left_s + _NEXT_LAUNCH_S, False  # too late for the next launch

    def alternate_suspects(self, tx: Tx) -> None:
        """Gives a turn to suspects, if any wait, at the second heartbeat after their last."""
        if self._others_turn or self.loading:
            self._suspects_turn = self._others_turn = False
            return
        models = [host.model for host in list(self._hosts.values())]
        self._suspects_turn = backlog.suspects_wait(tx, models)

    def look_for_others(self, tx: Tx) -> None:
        """Finds out, for a spot worker, which of its models nobody else is ready for."""
        if self._lone is not None:
            served = {key: host.model.served_by.key for key, host in list(self._hosts.items())}
            ready = workers.ready_on_demand(tx, 2 * self._lease_s, set(served.values()))
            self._lone = {key for key, base in served.items() if base not in ready}

    def _stays(self) -> Collection[str]:
        if self._lone is None:
            return ()
        return [key for key in list(self._hosts) if key not in self._lone]

    def _claim(
        self, rooms: Mapping[ClaimHost, int], preemptive: PreemptiveClaim | None = None
    ) -> list[Lease]:
        """Claims slices of one model, so that a quick one's do not wait for a slow one's."""
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
                item_ms={host.model: host.capacity.item_ms() for host in rooms},
                preemptive=preemptive,
                stays=self._stays(),
            )
            if len(leases) == 1:  # one that doesn't fit is claimed alone
                leases = [self._cut(tx, leases[0], rooms)]
        model = leases[0].model if leases else ""
        record.claim(clock.monotonic() - since_s, model, len(leases), False)
        return leases

    def _cut(self, tx: Tx, lease: Lease, rooms: Mapping[ClaimHost, int]) -> Lease:
        """Leaves a part of a claimed slice to others where all of it would run for long."""
        inputs, host = lease.inputs, self._hosts[lease.model]
        if inputs <= rooms[host]:
            return lease
        most = host.capacity.slice_items()
        if inputs <= _CUT_ABOVE * most:
            return lease
        part = min(most, max(rooms[host], most // 2))  # parts that are too small cost more
        return split.cut(tx, lease, max(1, part // lease.each), self._pool)

    def _claim_suspect(self) -> list[Lease]:
        if self.loading:
            return []
        for host in list(self._hosts.values()):
            if host.capacity.room():
                since_s = clock.monotonic()
                with self._database.begin() as tx:
                    leases = claim.claim_suspect(tx, self._incarnation, host.model, self._lease_s)
                record.claim(clock.monotonic() - since_s, host.model.key, len(leases), True)
                if leases:
                    return leases
        return []

    def _rotated_hosts(self) -> Iterator[ClaimHost]:
        """Yields the hosts, another one first each time: it wins where tenants are owed alike."""
        hosts = list(self._hosts.values())
        self._turn += 1
        for n in range(len(hosts)):
            yield hosts[(self._turn + n) % len(hosts)]
