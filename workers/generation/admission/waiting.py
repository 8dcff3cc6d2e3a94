"""Sequences that wait for a place: sorted by tenant, and tenants by their turns."""

from bisect import bisect_left, insort
from collections.abc import Iterator
from heapq import heappop, heappush, heapreplace
from itertools import count

from workers.generation.admission.turns import Turns
from workers.generation.requests import Sequenced
from workers.scheduler.entries import Place

_Entry = tuple[float, Place, int, Sequenced]  # deadline, place, number; numbers are unique


class Waiting:
    """Calls, or items, that wait. The next one is the most urgent of the tenant whose turn it is.

    A tenant's counter only grows while it waits, so an entry of the heap may be too low but never
    too high: it is brought up to date when it comes to the top.
    """

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._numbers = count()
        self._entries: dict[Sequenced, _Entry] = {}
        self._queues: dict[str, list[_Entry]] = {}  # by tenant, none empty
        self._heap: list[tuple[float, int, str]] = []  # counter, number, tenant
        self._heaped = set[str]()  # tenants in the heap, once each

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Sequenced]:
        return iter(self._entries)

    def __contains__(self, sequence: Sequenced) -> bool:
        return sequence in self._entries

    def put(self, sequence: Sequenced) -> None:
        """Queues a sequence of a tenant that has joined the turns."""
        request = sequence.request
        entry = request.deadline_s, request.place, next(self._numbers), sequence
        self._entries[sequence] = entry
        insort(self._queues.setdefault(request.tenant, []), entry)
        if request.tenant not in self._heaped:
            self._heaped.add(request.tenant)
            self._push(request.tenant)

    def remove(self, sequence: Sequenced) -> None:
        """Removes a sequence that waits."""
        entry, tenant = self._entries.pop(sequence), sequence.request.tenant
        queue = self._queues[tenant]
        del queue[bisect_left(queue, entry)]
        if not queue:
            del self._queues[tenant]
        if not self._entries:  # counters may begin at 0 again
            self._heap.clear()
            self._heaped.clear()

    def first(self) -> Sequenced | None:
        """Returns the next sequence, None where none waits."""
        while self._heap:
            counter, number, tenant = self._heap[0]
            if tenant not in self._queues:
                heappop(self._heap)
                self._heaped.remove(tenant)
            elif counter < (now := self._turns.counter(tenant)):
                heapreplace(self._heap, (now, number, tenant))
            else:
                return self._queues[tenant][0][-1]
        return None

    def first_of_tenants(self) -> list[Sequenced]:
        """Returns the next sequence of each tenant, in the order of their turns."""
        return [self._queues[tenant][0][-1] for tenant in self._turns.ordered(self._queues)]

    def _push(self, tenant: str) -> None:
        heappush(self._heap, (self._turns.counter(tenant), next(self._numbers), tenant))
