"""Load of a pool at one moment, as a decision sees it."""

from dataclasses import dataclass, replace

_LEAST_FREE = 0.1
"""Share of a pool that jobs are taken to get, however busy calls keep it."""


@dataclass(frozen=True, slots=True)
class Signals:
    """Load of one pool.

    Work is counted in replicas: device time at full launches, over what one replica has of it. So
    it says nothing about how busy devices are, which jobs and small launches keep busy by design.
    """

    at_s: float  #: Unix time, s
    ready: int = 0  #: replicas that take work
    booting: int = 0  #: replicas that load their models
    offered: float = 0.0  #: work of calls as they arrive, refused ones included, in replicas
    backlog_s: float = 0.0  #: work of waiting items, in seconds of one replica
    queue: int = 0  #: calls that wait
    items: int = 0  #: items without a result
    wait_s: float = 0.0  #: longest wait of a call that waits now, s
    slack_s: float | None = None  #: time until the most urgent call is due, s; None: none waits
    refused: float = 0.0  #: share of calls that were refused for load, 0 to 1
    #: share of the time in which the ready replicas prepare; None: the pool does something else
    busy: float | None = None
    late: float = 0.0  #: share of the answered calls that missed their target, 0 to 1
    #: of the pool of apis: lag of their event loops, s, and requests a second; None: of workers
    lag_s: float | None = None
    requests_s: float | None = None
    missing: tuple[str, ...] = ()  #: what isn't known, in words; nothing is decided then

    @property
    def used(self) -> float:
        """Work of calls as a share of what the ready replicas give: 1 is all of it. Of preparation,
        which no call waits for, the share of the time in which it goes on."""
        return self.offered / max(1, self.ready) if self.busy is None else self.busy

    @property
    def requests_each_s(self) -> float:
        """Requests a second that an api gets."""
        return (self.requests_s or 0.0) / max(1, self.ready)

    def lags(self, most_ms: float) -> bool:
        """Returns True if the event loops of apis lag by more than that."""
        return (self.lag_s or 0.0) * 1000 > most_ms

    @property
    def drain_s(self) -> float:
        """Time until the waiting items are done, by what calls leave of the pool, s."""
        free = max(self.ready - self.offered, _LEAST_FREE * max(1, self.ready))
        return self.backlog_s / free

    def with_spot(self, spot: "Signals") -> "Signals":
        """Returns the load of this pool and the one of its spot workers together. Calls that wait,
        are refused or late are those of the models that both serve."""
        slacks = [one for one in (self.slack_s, spot.slack_s) if one is not None]
        return replace(
            self,
            ready=self.ready + spot.ready,
            booting=self.booting + spot.booting,
            offered=self.offered + spot.offered,
            backlog_s=self.backlog_s + spot.backlog_s,
            queue=max(self.queue, spot.queue),
            items=self.items + spot.items,
            wait_s=max(self.wait_s, spot.wait_s),
            slack_s=min(slacks, default=None),
            refused=max(self.refused, spot.refused),
            late=max(self.late, spot.late),
            missing=tuple(dict.fromkeys((*self.missing, *spot.missing))),
        )

    def figures(self) -> dict[str, float | None]:
        """Returns the figures that metrics, `why` and HTTP show, by their names there."""
        return {
            "capacity_used": self.used,
            "offered_replicas": self.offered,
            "backlog_s": self.backlog_s,
            "drain_s": self.drain_s,
            "oldest_wait_s": self.wait_s,
            "slack_s": self.slack_s,
            "refused": self.refused,
            "late": self.late,
            "lag_s": self.lag_s,
            "requests_s": self.requests_s,
        }
