"""Load of a pool, from what its processes report."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from jobs.calls.lanes import LanesState
from jobs.calls.profile import Profile
from jobs.models.model import Model, PreparationModel
from jobs.scaling import cost
from jobs.scaling.signals import Signals
from jobs.states import PREPARE_POOL
from jobs.telemetry.reports.reports import ReportSet

REFUSED = ("predicted_wait", "overloaded", "no_worker", "deadline_passed")
"""Outcomes of calls that more replicas would have answered."""
_FAILED = ("engine_error", "internal", "invalid_output", "worker_lost")
_WORKED = ("succeeded", "cancelled", *_FAILED)
"""Outcomes of calls that took device time."""
_LEAST_BUSY = 0.5
"""Share of the time in which workers prepare, from which on waiting items wait for them."""


@dataclass(frozen=True, slots=True)
class Queue:
    """Calls of one model that wait, as Redis has them."""

    rows: int = 0
    due_in_s: float | None = None  #: until the most urgent is due; None: none waits

    @classmethod
    def from_lanes(cls, state: LanesState) -> "Queue":
        """Sums up the lanes of a model."""
        if not state.lanes:
            return cls()
        due_ms = min(lane.due_ms for lane in state.lanes)
        return cls(sum(lane.rows for lane in state.lanes), (due_ms - state.now_ms) / 1000)


@dataclass(frozen=True, slots=True)
class ModelQueues:
    """Figures from Redis, by name@version; models that it didn't tell are absent."""

    profiles: Mapping[str, Profile] = field(default_factory=dict)
    calls: Mapping[str, Queue] = field(default_factory=dict)


def measure(
    pool: str,
    models: Iterable[tuple[Model, list[str]]],
    reports: ReportSet,
    queues: ModelQueues,
    workers: Mapping[str, int],
    at_s: float,
) -> Signals:
    """Returns the load of a pool.

    models: those of the pool, each with the names that its calls and items go by (adapters have
    their own); workers: live ones by state; at_s: Unix time.
    """
    recent = reports.recent()
    parts = [
        ModelLoad.of(model, names, reports, recent, queues).shared(
            _share(pool, model, reports), _share_of_items(pool, model, reports)
        )
        for model, names in models
    ]
    refused, answered = sum(one.refused for one in parts), sum(one.answered for one in parts)
    judged = sum(one.judged for one in parts)
    busy = _busy(reports) if pool == PREPARE_POOL else None
    ready = workers.get("ready", 0)
    # Workers that are idle though items wait are ahead of the devices: more of them do no more.
    waits = busy is None or busy >= _LEAST_BUSY or not ready
    return Signals(
        at_s=at_s,
        ready=ready,
        booting=workers.get("loading", 0),
        offered=sum(one.offered for one in parts),
        backlog_s=sum(one.backlog_s for one in parts) if waits else 0.0,
        queue=sum(one.queue.rows for one in parts),
        items=round(sum(one.items for one in parts)),
        wait_s=max((one.wait_s for one in parts), default=0.0),
        busy=busy,
        slack_s=min((s for one in parts if (s := one.queue.due_in_s) is not None), default=None),
        refused=refused / (refused + answered) if refused else 0.0,
        late=sum(one.late for one in parts) / judged if judged else 0.0,
        missing=tuple(_missing(pool, parts, reports, workers)),
    )


def measure_apis(reports: ReportSet, requests_s: float, at_s: float) -> Signals:
    """Returns the load of the apis.

    requests_s: that one of them carries. Their lag is what half of them have at least: one that
    lags alone has a client that floods a connection, or is ill, and no further api mends that.
    """
    apis = reports.by_kind("api")
    each = (ReportSet([one]).gauge("millrace_event_loop_lag_seconds") for one in apis.reports)
    lags = sorted(lag_s for lag_s in each if lag_s is not None)
    come_s = apis.recent().rate("millrace_http_requests_total")
    return Signals(
        at_s=at_s,
        ready=len(apis.reports),
        offered=come_s / requests_s,
        lag_s=lags[len(lags) // 2] if lags else 0.0,
        requests_s=come_s,
        missing=() if apis.reports else ("reports of apis",),
    )


@dataclass(frozen=True, slots=True)
class ModelLoad:
    """Load by one model. Calls are counted by the second."""

    key: str
    answered: float
    refused: float
    judged: float  #: answered calls to which the target applies
    late: float  #: of those
    offered: float  #: replicas
    items: float
    backlog_s: float
    queue: Queue
    target_s: float
    known: bool  #: False: Redis didn't say
    oldest_s: float = 0.0  #: longest wait of a slice that is to be prepared

    @property
    def wait_s(self) -> float:
        """Longest wait of a call that waits, or of a slice that is to be prepared."""
        due_in_s = self.queue.due_in_s
        return self.oldest_s if due_in_s is None else max(0.0, self.target_s - due_in_s)

    def shared(self, share: float, of_items: float) -> "ModelLoad":
        """Returns the part of it that one of the model's pools has: of calls, and of items."""
        items, backlog_s = of_items * self.items, of_items * self.backlog_s
        return replace(self, offered=share * self.offered, items=items, backlog_s=backlog_s)

    @property
    def refused_share(self) -> float:
        """Share of its calls that were refused for load."""
        return self.refused / (self.refused + self.answered) if self.refused else 0.0

    @property
    def late_share(self) -> float:
        """Share of the answered calls that missed the target."""
        return self.late / self.judged if self.judged else 0.0

    @classmethod
    def of(
        cls, model: Model, names: list[str], reports: ReportSet, recent: ReportSet,
        queues: ModelQueues,
    ) -> "ModelLoad":  # fmt: skip
        """Reads the figures of one model. names: of its calls and items, adapters have their own;
        recent: `reports.recent()`."""
        rates, met = dict[str, float](), dict[str, float]()
        for name in names:
            _add(rates, recent.rate_by("millrace_calls_total", "outcome", model=name))
            _add(met, recent.rate_by("millrace_call_target_total", "met", model=name))
        refused = sum(rates.get(outcome, 0.0) for outcome in REFUSED)
        worked = sum(rates.get(outcome, 0.0) for outcome in _WORKED)
        # What the server refused, or failed at, misses the target too.
        others = refused + sum(rates.get(outcome, 0.0) for outcome in _FAILED)
        late = max(0.0, met.get("false", 0.0) - others)
        shares = cost.bucket_shares(
            reports.increase_by("millrace_lane_entries_total", "lane", model=model.key)
        )
        entry_s = cost.entry_s(model, queues.profiles.get(model.key, Profile()), shares)
        queued = reports.gauge_by("millrace_queue_items", "model")
        items = sum(queued.get(name, 0.0) for name in names)
        offered = (worked + refused) * entry_s
        if model.spec.generates:
            offered = _generated(model.key, reports) * (1 + refused / max(worked, 1e-9))
        return cls(
            key=model.key,
            answered=worked,
            refused=refused,
            judged=late + met.get("true", 0.0),
            late=late,
            offered=offered,
            items=items,
            backlog_s=items * _item_s(model, reports, entry_s),
            queue=queues.calls.get(model.key, Queue()),
            target_s=model.answer_target_ms / 1000,
            known=model.key in queues.calls,
            oldest_s=_oldest_s(model, reports),
        )


def _share(pool: str, model: Model, reports: ReportSet) -> float:
    """Returns the share of a model's entries that the workers of a pool ran; an even one where none
    did."""
    if len(model.pools) == 1:
        return 1.0
    ran = dict.fromkeys(model.pools, 0.0)
    for report in reports.by_kind("worker").reports:
        if (its := report.details.get("pool")) in ran:
            ran[its] += ReportSet([report]).increase("millrace_entries_total", model=model.key)
    total = sum(ran.values())
    return ran[pool] / total if total else 1 / len(ran)


def _share_of_items(pool: str, model: Model, reports: ReportSet) -> float:
    """Returns the same of what waits: pools whose workers all leave items to cheaper ones have
    none of it."""
    take = [one for one in model.pools if not _leaves_items(one, model, reports)]
    if len(take) in (0, len(model.pools)):
        return _share(pool, model, reports)
    if pool not in take:
        return 0.0
    total = sum(_share(one, model, reports) for one in take)
    return _share(pool, model, reports) / total if total else 1 / len(take)


def _leaves_items(pool: str, model: Model, reports: ReportSet) -> bool:
    workers = [
        its
        for report in reports.by_kind("worker").reports
        if report.details.get("pool") == pool
        and (its := report.details.get("models", {}).get(model.key))
        and its.get("state") == "ready"
    ]
    return bool(workers) and all(its.get("leaves_items") for its in workers)


def _oldest_s(model: Model, reports: ReportSet) -> float:
    """Returns the wait of the oldest slice that is to be prepared; 0 for models themselves."""
    if not isinstance(model, PreparationModel):
        return 0.0
    return reports.gauge("millrace_queue_oldest_seconds", model=model.key) or 0.0


def _busy(reports: ReportSet) -> float:
    """Returns the share of the last ten seconds in which workers of the pool prepared."""
    its = [
        ReportSet([one]).rate("millrace_device_busy_seconds_total")
        for one in reports.recent().by_kind("worker").reports
        if one.details.get("pool") == PREPARE_POOL
    ]
    return min(1.0, sum(its) / len(its)) if its else 0.0


def _generated(key: str, reports: ReportSet) -> float:
    """Returns the KV caches that calls use and wait for, in those of one worker each. Items that
    run beside them yield."""
    total = 0.0
    for report in reports.by_kind("worker").reports:
        own = ReportSet([report])
        running = own.gauge_by("millrace_num_requests_running", "kind", model=key)
        waiting = own.gauge_by("millrace_num_requests_waiting", "kind", model=key)
        usage = own.gauge("millrace_kv_cache_usage_perc", model=key) or 0.0
        if sequences := sum(running.values()):
            calls = running.get("call", 0.0) + waiting.get("call", 0.0)
            total += usage * calls / sequences
    return total


def _item_s(model: Model, reports: ReportSet, entry_s: float) -> float:
    """Returns the seconds of one replica that an item takes: of one that is generated or prepared
    as measured in the last minute, since nothing else says how long its answer is, or its input."""
    if model.spec.generates or isinstance(model, PreparationModel):
        count = reports.increase("millrace_entries_total", model=model.key)
        busy_s = reports.increase("millrace_model_device_seconds_total", model=model.key)
        return busy_s / count if count else entry_s
    return entry_s


def _missing(
    pool: str, parts: list[ModelLoad], reports: ReportSet, workers: Mapping[str, int]
) -> Iterable[str]:
    if not reports.by_kind("api").reports:
        yield "reports of apis"
    reporting = sum(
        report.details.get("pool") == pool for report in reports.by_kind("worker").reports
    )
    if reporting < workers.get("ready", 0):
        yield f"reports of workers ({reporting} of {workers['ready']} came)"
    if unknown := [one.key for one in parts if not one.known]:
        yield f"the queues of {', '.join(unknown)}, which Redis didn't tell"


def _add(total: dict[str, float], more: Mapping[str, float]) -> None:
    for name, value in more.items():
        total[name] = total.get(name, 0.0) + value
