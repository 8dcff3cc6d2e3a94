"""Turns of tenants by start-time fair queueing (Goyal et al. 1996), counted in this process.

The tenant with the least virtual time is next; one that comes back starts where the others are.
"""

from collections.abc import Callable, Iterable, Sequence

from jobs.calls.lanes import Ticket
from jobs.calls.messages import Call


class VirtualTime:
    """Virtual time of each tenant whose calls wait."""

    def __init__(self) -> None:
        self._served: dict[str, float] = {}
        self._start = 0.0

    def clear(self) -> None:
        """Forgets all: no tenant has to wait."""
        self._served.clear()
        self._start = 0.0

    def turn(self, tenants: Iterable[str]) -> float:
        """Returns the least virtual time of these tenants."""
        return min(map(self._time, tenants))

    def choose(
        self, waiting: Iterable[Call], ticket: Ticket, is_late: Callable[[Call], bool]
    ) -> tuple[list[Call], list[Call]]:
        """Returns the calls that a ticket takes of a lane, and those that are late for it."""
        queues: dict[str, list[Call]] = {}
        for call in waiting:
            queues.setdefault(call.tenant, []).append(call)
        times = {tenant: self._time(tenant) for tenant in queues}
        queues = _allowed(queues, ticket, times)
        taken: list[Call] = []
        late: list[Call] = []
        units = 0
        while queues and len(taken) < ticket.rows:
            tenant = min(queues, key=lambda name: times[name])
            call = queues[tenant][0]
            if is_late(call):
                late.append(call)
            elif ticket.units and taken and units + call.size > ticket.units:
                break
            else:
                units += call.size
                self._start = times[tenant]
                times[tenant] += (max(1, call.size) if ticket.sized else 1) / call.weight
                taken.append(call)
            queues[tenant].pop(0)
            if not queues[tenant]:
                del queues[tenant]
        self._served |= times
        return taken, late

    def _time(self, tenant: str) -> float:
        return max(self._start, self._served.get(tenant, 0.0))


def _allowed(
    queues: dict[str, list[Call]], ticket: Ticket, times: dict[str, float]
) -> dict[str, list[Call]]:
    """Leaves out tenants that the ticket doesn't take calls of."""
    queues = {name: queue for name, queue in queues.items() if name not in ticket.without}
    if ticket.bulk != "mixed" and queues:
        first = min(queues, key=lambda name: times[name])
        if ticket.bulk == "none" or not _is_bulk(queues[first], ticket):
            return {name: queue for name, queue in queues.items() if not _is_bulk(queue, ticket)}
    return queues


def _is_bulk(queue: Sequence[Call], ticket: Ticket) -> bool:
    """Returns True for calls that are more than a good part of a launch."""
    units = sum(call.size for call in queue)
    return len(queue) > ticket.rows / 2 or bool(ticket.units and units > ticket.units / 4)
