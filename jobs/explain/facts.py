"""What rules look at: plain figures of the last minute, by model, tenant and part of the system."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from jobs.models.model import Limits, Model
from jobs.store.monitoring.observations import ModelObservation, Observations
from jobs.telemetry.metrics.metrics import STAGES
from jobs.telemetry.reports.reports import Reading, Report

REFUSALS = ("predicted_wait", "overloaded")
"""Calls that end so were refused because there is too much to do."""
MODEL_FAULTS = ("engine_error", "internal", "invalid_output", "worker_lost")
"""Ends of calls and items that are the model's fault, or its worker's."""


@dataclass(frozen=True, slots=True)
class Lane:
    """entries, launches: that left it; wait_s: of those entries, together."""

    name: str
    entries: float
    launches: float
    wait_s: float

    @property
    def mean_wait_s(self) -> float:
        return self.wait_s / max(1.0, self.entries)


@dataclass(frozen=True, slots=True)
class Use:
    """What a tenant had of a model. units: size, in the model's unit."""

    tenant: str
    entries: float
    units: float
    device_s: float


@dataclass(frozen=True, slots=True)
class Launches:
    """Of one model. rows, fill, seconds, prediction: means (prediction: the median of actual by
    predicted time); padding: the share of what was computed for nothing; reasons: how many left for
    what."""

    count: float = 0.0
    rows: float = 0.0
    fill: float = 0.0
    seconds: float = 0.0
    prediction: float = 1.0
    padding: float = 0.0
    reasons: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Calls:
    """Of one model. p99_s: None where none was answered; stages_s: the mean of each stage; missed:
    the share that missed the target, of `judged`; outcomes: how many ended how."""

    count: float = 0.0
    answered: float = 0.0
    p99_s: float | None = None
    stages_s: Mapping[str, float] = field(default_factory=dict)
    missed: float = 0.0
    judged: float = 0.0
    outcomes: Mapping[str, float] = field(default_factory=dict)

    @property
    def mean_s(self) -> float:
        return sum(self.stages_s.values())

    def share(self, *stages: str) -> float:
        """Of the mean time of a call."""
        return sum(self.stages_s.get(stage, 0.0) for stage in stages) / max(1e-9, self.mean_s)


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """busy: the share of the time in which the devices that have it were busy, with whatever model;
    slots: launches that it may have at a time, on all of them; queued_calls, queued_items,
    drain_s, stuck: as the keeper counts them; items: how many ended how."""

    key: str
    target_s: float
    limits: Limits
    calls: Calls
    launches: Launches
    lanes: tuple[Lane, ...]
    uses: tuple[Use, ...]
    busy: float
    slots: float
    workers: int
    queued_calls: float
    queued_items: float
    drain_s: float
    stuck: float
    items: Mapping[str, float]
    errors: Mapping[str, float]
    standing: ModelObservation

    @property
    def about(self) -> str:
        return f"model:{self.key}"

    @property
    def waits(self) -> bool:
        """Whether there is anything to do for it."""
        return self.queued_calls + self.queued_items > 0


@dataclass(frozen=True, slots=True)
class TenantFacts:
    """share: of the device, by its fair share of it; present while it has work waiting."""

    name: str
    share: float


@dataclass(frozen=True, slots=True)
class DatabaseFacts:
    """probe_s: of the smallest write that commits; p95_s: of transactions; unanswered_s: for so
    long the question for what else it knows has had no answer."""

    transactions: float
    p95_s: float
    errors: float
    probe_s: float
    unanswered_s: float


@dataclass(frozen=True, slots=True)
class RedisFacts:
    """probe_s: of a PING; p95_s: of commands; unanswered_s: for so long the question for what
    processes told has had no answer."""

    commands: float
    p95_s: float
    errors: float
    probe_s: float
    unanswered_s: float


@dataclass(frozen=True, slots=True)
class WebhookFacts:
    """tries by outcome; mean_s: of a try; pending, oldest_s: of deliveries that are due."""

    tries: Mapping[str, float]
    mean_s: float
    pending: float
    oldest_s: float

    @property
    def tried(self) -> float:
        return sum(self.tries.values())


@dataclass(frozen=True, slots=True)
class KeeperFacts:
    """there: how many report; runs, failed: by service."""

    there: int
    runs: Mapping[str, float]
    failed: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class UpstreamFacts:
    """requests: by outcome; limit: at a time, the least of its workers."""

    name: str
    requests: Mapping[str, float]
    limit: float
    open: bool


@dataclass(frozen=True, slots=True)
class Facts:
    """All of it. reports: processes that told of themselves; told_s: the longest that one has told
    of; lag_s: of the event loop of the api that lags most; reaped: leases taken from the dead;
    deaths: workers that ended without a goodbye, by how, of the last minute."""

    reports: int
    told_s: float
    lag_s: float
    models: tuple[ModelFacts, ...]
    tenants: tuple[TenantFacts, ...]
    upstreams: tuple[UpstreamFacts, ...]
    database: DatabaseFacts
    redis: RedisFacts
    webhooks: WebhookFacts
    keepers: KeeperFacts
    deaths: Mapping[str, float]
    reaped: float
    seen: Observations

    @classmethod
    def of(
        cls,
        reading: Reading,
        models: Iterable[Model] = (),
        seen: Observations | None = None,
        unanswered_s: float = 0.0,
        redis_unanswered_s: float = 0.0,
    ) -> "Facts":
        """models: those that are declared; seen: what the database said, None where it wasn't asked
        or hasn't answered for `unanswered_s`; redis_unanswered_s: the same of the reading."""
        declared = {model.key: model for model in models}
        seen = seen or Observations()
        workers = [_Worker.of(report) for report in reading.of("worker").reports]
        return cls(
            reports=len(reading.reports),
            told_s=max((report.stretch.seconds for report in reading.reports), default=0.0),
            lag_s=reading.gauge("millrace_event_loop_lag_seconds") or 0.0,
            models=tuple(
                _model(reading, workers, key, declared.get(key), seen)
                for key in _keys(reading, declared, seen)
            ),
            tenants=tuple(
                TenantFacts(name, share)
                for name, share in reading.gauge_by("millrace_tenant_share_ratio", "tenant").items()
            ),
            upstreams=tuple(_upstreams(reading)),
            database=_database(reading, unanswered_s),
            redis=_redis(reading, redis_unanswered_s),
            webhooks=_webhooks(reading),
            keepers=_keepers(reading),
            deaths=reading.increase_by("millrace_worker_deaths_total", "how"),
            reaped=reading.increase("millrace_leases_reaped_total"),
            seen=seen,
        )


def _keys(reading: Reading, declared: Mapping[str, Model], seen: Observations) -> list[str]:
    told: dict[str, None] = dict.fromkeys((*declared, *seen.models))
    for metric in ("millrace_calls_total", "millrace_launches_total", "millrace_items_total"):
        told |= dict.fromkeys(reading.increase_by(metric, "model"))
    for metric in ("millrace_queue_items", "millrace_queue_calls", "millrace_model_slots"):
        told |= dict.fromkeys(reading.gauge_by(metric, "model"))
    return [key for key in told if key]


@dataclass(frozen=True, slots=True)
class _Worker:
    """busy: the share of the time in which its device was; slots: by model."""

    busy: float
    slots: Mapping[str, float]

    @classmethod
    def of(cls, report: Report) -> "_Worker":
        alone = Reading([report])
        busy = alone.rate("millrace_device_busy_seconds_total")
        return cls(min(1.0, busy), alone.gauge_by("millrace_model_slots", "model"))


def _model(
    reading: Reading, workers: list[_Worker], key: str, declared: Model | None, seen: Observations
) -> ModelFacts:
    target_s = reading.gauge("millrace_model_target_seconds", model=key)
    serving = [worker for worker in workers if worker.slots.get(key)]
    return ModelFacts(
        key=key,
        target_s=target_s or (declared.target_ms / 1000 if declared else 0.0),
        limits=declared.limits if declared else Limits(),
        calls=_calls(reading, key),
        launches=_launches(reading, key),
        lanes=_lanes(reading, key),
        uses=_uses(reading, key),
        busy=sum(worker.busy for worker in serving) / max(1, len(serving)),
        slots=sum(worker.slots[key] for worker in serving),
        workers=len(serving),
        queued_calls=reading.gauge("millrace_queue_calls", model=key) or 0.0,
        queued_items=reading.gauge("millrace_queue_items", model=key) or 0.0,
        drain_s=reading.gauge("millrace_predicted_drain_seconds", model=key) or 0.0,
        stuck=reading.gauge("millrace_jobs_stuck", model=key) or 0.0,
        items=reading.increase_by("millrace_items_total", "outcome", model=key),
        errors=reading.increase_by("millrace_item_errors_total", "code", model=key),
        standing=seen.models.get(key, ModelObservation()),
    )


def _calls(reading: Reading, key: str) -> Calls:
    outcomes = reading.increase_by("millrace_calls_total", "outcome", model=key)
    stages = {
        stage: reading.mean("millrace_call_stage_seconds", model=key, stage=stage)
        for stage in STAGES
    }
    met = reading.increase_by("millrace_call_target_total", "met", model=key)
    judged = sum(met.values())
    return Calls(
        count=sum(outcomes.values()),
        answered=outcomes.get("succeeded", 0.0),
        p99_s=reading.quantile("millrace_call_seconds", 0.99, model=key),
        stages_s={stage: mean for stage, mean in stages.items() if mean is not None},
        missed=(judged - met.get("true", 0.0)) / judged if judged else 0.0,
        judged=judged,
        outcomes=outcomes,
    )


def _launches(reading: Reading, key: str) -> Launches:
    reasons = reading.increase_by("millrace_launches_total", "reason", model=key)
    units = reading.increase("millrace_launch_units_total", model=key)
    padded = reading.increase("millrace_launch_padded_units_total", model=key)
    prediction = reading.quantile("millrace_launch_prediction_ratio", 0.5, model=key)
    return Launches(
        count=sum(reasons.values()),
        rows=reading.mean("millrace_launch_rows", model=key) or 0.0,
        fill=reading.mean("millrace_launch_fill_ratio", model=key) or 0.0,
        seconds=reading.mean("millrace_launch_seconds", model=key) or 0.0,
        prediction=1.0 if prediction is None else prediction,
        padding=1 - units / padded if padded else 0.0,
        reasons=reasons,
    )


def _lanes(reading: Reading, key: str) -> tuple[Lane, ...]:
    """Those that had most of the waiting first."""
    entries = reading.increase_by("millrace_lane_entries_total", "lane", model=key)
    launches = reading.increase_by("millrace_lane_launches_total", "lane", model=key)
    waits = reading.increase_by("millrace_lane_wait_seconds_total", "lane", model=key)
    lanes = (
        Lane(name, count, launches.get(name, 0.0), waits.get(name, 0.0))
        for name, count in entries.items()
    )
    return tuple(sorted(lanes, key=lambda lane: -lane.wait_s))


def _uses(reading: Reading, key: str) -> tuple[Use, ...]:
    """Those that had most of the model first."""
    entries = reading.increase_by("millrace_tenant_entries_total", "tenant", model=key)
    units = reading.increase_by("millrace_tenant_units_total", "tenant", model=key)
    device = reading.increase_by("millrace_tenant_device_seconds_total", "tenant", model=key)
    uses = (
        Use(tenant, count, units.get(tenant, 0.0), device.get(tenant, 0.0))
        for tenant, count in entries.items()
    )
    return tuple(sorted(uses, key=lambda use: -use.units))


def _upstreams(reading: Reading) -> Iterable[UpstreamFacts]:
    limits = reading.gauge_by("millrace_upstream_limit", "upstream", min)
    opened = reading.gauge_by("millrace_upstream_breaker_open", "upstream")
    asked = reading.increase_by("millrace_upstream_requests_total", "upstream")
    for name in dict.fromkeys((*limits, *opened, *asked)):
        requests = reading.increase_by("millrace_upstream_requests_total", "outcome", upstream=name)
        yield UpstreamFacts(name, requests, limits.get(name, 0.0), opened.get(name, 0.0) > 0)


def _database(reading: Reading, unanswered_s: float) -> DatabaseFacts:
    metric = "millrace_database_transaction_seconds"
    return DatabaseFacts(
        transactions=reading.increase(f"{metric}_count"),
        p95_s=reading.quantile(metric, 0.95) or 0.0,
        errors=reading.increase("millrace_database_errors_total"),
        probe_s=reading.gauge("millrace_database_probe_seconds") or 0.0,
        unanswered_s=unanswered_s,
    )


def _redis(reading: Reading, unanswered_s: float) -> RedisFacts:
    metric = "millrace_redis_seconds"
    return RedisFacts(
        commands=reading.increase(f"{metric}_count"),
        p95_s=reading.quantile(metric, 0.95) or 0.0,
        errors=reading.increase("millrace_redis_errors_total"),
        probe_s=reading.gauge("millrace_redis_probe_seconds") or 0.0,
        unanswered_s=unanswered_s,
    )


def _webhooks(reading: Reading) -> WebhookFacts:
    return WebhookFacts(
        tries=reading.increase_by("millrace_webhook_attempts_total", "outcome"),
        mean_s=reading.mean("millrace_webhook_seconds") or 0.0,
        pending=reading.gauge("millrace_webhooks_pending") or 0.0,
        oldest_s=reading.gauge("millrace_webhook_oldest_seconds") or 0.0,
    )


def _keepers(reading: Reading) -> KeeperFacts:
    runs = "millrace_keeper_runs_total"
    return KeeperFacts(
        there=len(reading.of("keeper").reports),
        runs=reading.increase_by(runs, "service"),
        failed=reading.increase_by(runs, "service", outcome="failed"),
    )
