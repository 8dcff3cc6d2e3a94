"""Input of the rules: figures of the last minute by model, tenant and service."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from jobs.explain import cheaper
from jobs.explain.adapters import AdapterLoads
from jobs.explain.cheaper import Cheaper
from jobs.explain.generation import Generation
from jobs.explain.keepers import KeeperFacts, keepers
from jobs.explain.workers import GpuFacts, Hand, gpus, hands, with_found_rows
from jobs.models.model import Limits, Model, without_stage
from jobs.store.monitoring.observations import ModelObservation, Observations
from jobs.telemetry.metrics.metrics import STAGES
from jobs.telemetry.reports.reports import Report, ReportSet

REFUSALS = ("predicted_wait", "overloaded")
"""Outcomes of calls that were rejected because of overload."""
MODEL_FAULTS = ("engine_error", "internal", "invalid_output", "worker_lost")
"""Outcomes of calls and items that failed because of the model or its worker."""


@dataclass(frozen=True, slots=True)
class Lane:
    """Lane of a model."""

    name: str
    entries: float  #: entries launched
    launches: float
    wait_s: float  #: total wait of those entries

    @property
    def mean_wait_s(self) -> float:
        """Mean wait of an entry."""
        return self.wait_s / max(1.0, self.entries)


@dataclass(frozen=True, slots=True)
class Use:
    """Use of a model by a tenant."""

    tenant: str
    entries: float
    units: float  #: input size, in the model's unit
    device_s: float


@dataclass(frozen=True, slots=True)
class Launches:
    """Launches of a model."""

    count: float = 0.0
    rows: float = 0.0  #: mean entries
    fill: float = 0.0  #: mean share of the maximum, 0 to 1
    seconds: float = 0.0  #: mean device time
    prediction: float = 1.0  #: median of actual over predicted time
    padding: float = 0.0  #: share of the computed size, 0 to 1
    reasons: Mapping[str, float] = field(default_factory=dict)  #: count by flush reason


@dataclass(frozen=True, slots=True)
class Calls:
    """Calls of a model."""

    count: float = 0.0
    answered: float = 0.0
    p99_s: float | None = None  #: None: none was answered
    stages_s: Mapping[str, float] = field(default_factory=dict)  #: mean by stage
    missed: float = 0.0  #: share of `judged` that missed the target, 0 to 1
    judged: float = 0.0  #: calls to which the target applies
    outcomes: Mapping[str, float] = field(default_factory=dict)  #: count by outcome

    @property
    def mean_s(self) -> float:
        """Mean latency."""
        return sum(self.stages_s.values())

    def share(self, *stages: str) -> float:
        """Returns the share of these stages in the mean latency, 0 to 1."""
        return sum(self.stages_s.get(stage, 0.0) for stage in stages) / max(1e-9, self.mean_s)


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """Figures of a model."""

    key: str
    target_s: float
    limits: Limits
    calls: Calls
    launches: Launches
    lanes: tuple[Lane, ...]
    uses: tuple[Use, ...]
    busy: float  #: busy share of the devices that have it, with any model, 0 to 1
    slots: float  #: launches that may run at a time, over all workers
    workers: int
    gpus: tuple[GpuFacts, ...]  #: of the workers that serve it
    hands: tuple[Hand, ...]  #: of the workers that serve it, those with the most slices first
    queued_calls: float
    queued_items: float
    claimable_s: float  #: age of its oldest slice that no worker has; 0: there is none
    capacity_used: float | None  #: of its pool by calls, 1 is all of it; None: not known
    drain_s: float  #: predicted time until the backlog is done
    stuck: float  #: jobs without progress
    items: Mapping[str, float]  #: count by outcome
    errors: Mapping[str, float]  #: failures of items by code
    observed: ModelObservation  #: its states in live workers
    generation: Generation  #: all 0 where it doesn't generate
    adapters: AdapterLoads  #: all 0 where it has none
    cheaper: Cheaper = Cheaper()  #: no pools where no worker leaves items to others

    @property
    def about(self) -> str:
        """Subject of its findings; of a preparation the model itself."""
        return f"model:{without_stage(self.key)}"

    @property
    def has_backlog(self) -> bool:
        """True while calls or items wait."""
        return self.queued_calls + self.queued_items > 0


@dataclass(frozen=True, slots=True)
class TenantFacts:
    """Tenant with a backlog."""

    name: str
    share: float  #: device time relative to its fair share


@dataclass(frozen=True, slots=True)
class ServiceFacts:
    """Figures of PostgreSQL or Redis."""

    operations: float  #: transactions or commands
    p95_s: float  #: of operations
    errors: float
    probe_s: float  #: duration of a minimal committed write, or of a PING
    unanswered_s: float  #: time for which our query has had no answer


@dataclass(frozen=True, slots=True)
class WebhookFacts:
    """Figures of webhook deliveries."""

    tries: Mapping[str, float]  #: attempts by outcome
    mean_s: float  #: mean duration of an attempt
    pending: float
    oldest_s: float  #: age of the oldest due delivery

    @property
    def tried(self) -> float:
        """Number of attempts."""
        return sum(self.tries.values())


@dataclass(frozen=True, slots=True)
class UpstreamFacts:
    """Figures of an upstream server."""

    name: str
    requests: Mapping[str, float]  #: by outcome
    limit: float  #: concurrency limit, the lowest of all workers
    open: bool  #: its circuit breaker


@dataclass(frozen=True, slots=True)
class Facts:
    """Figures of the whole system over the last minute."""

    reports: int  #: processes that report
    window_s: float  #: longest window of a report
    lag_s: float  #: worst event loop lag of the api processes
    models: tuple[ModelFacts, ...]
    gpus: tuple[GpuFacts, ...]
    tenants: tuple[TenantFacts, ...]
    upstreams: tuple[UpstreamFacts, ...]
    database: ServiceFacts
    redis: ServiceFacts
    webhooks: WebhookFacts
    keepers: KeeperFacts
    deaths: Mapping[str, float]  #: unclean ends of workers by cause
    overdue: Mapping[str, float]  #: workers that the autoscaler asked for in vain, by pool
    #: spot workers that were reclaimed in the last hour, by pool and notice
    reclaimed: Mapping[str, Mapping[str, float]]
    reaped: float  #: leases taken from dead workers
    observations: Observations

    @classmethod
    def from_reports(
        cls,
        reports: ReportSet,
        models: Iterable[Model] = (),
        observations: Observations | None = None,
        unanswered_s: float = 0.0,
        redis_unanswered_s: float = 0.0,
    ) -> "Facts":
        """Builds the facts.

        models: the declared ones; observations: from the database, None if it wasn't queried or
        hasn't answered for `unanswered_s`; redis_unanswered_s: the same for the reports.
        """
        declared = {model.key: model for model in models}
        observations = observations or Observations()
        workers = [_Worker.from_report(report) for report in reports.by_kind("worker").reports]
        its_gpus = gpus(reports.by_kind("worker").reports)
        cheap = cheaper.from_reports(reports, declared.values())
        return cls(
            reports=len(reports.reports),
            window_s=max((report.delta.seconds for report in reports.reports), default=0.0),
            lag_s=reports.gauge("millrace_event_loop_lag_seconds") or 0.0,
            models=tuple(
                replace(
                    _model(reports, workers, its_gpus, key, declared.get(key), observations),
                    cheaper=cheap.get(key, Cheaper()),
                )
                for key in _keys(reports, declared, observations)
            ),
            gpus=its_gpus,
            tenants=tuple(
                TenantFacts(name, share)
                for name, share in reports.gauge_by("millrace_tenant_share_ratio", "tenant").items()
            ),
            upstreams=tuple(_upstreams(reports)),
            database=_service(reports, "database", "database_transaction", unanswered_s),
            redis=_service(reports, "redis", "redis", redis_unanswered_s),
            webhooks=_webhooks(reports),
            keepers=keepers(reports),
            deaths=reports.increase_by("millrace_worker_deaths_total", "how"),
            overdue=reports.gauge_by("millrace_pool_overdue_replicas", "pool"),
            reclaimed={
                pool: reports.gauge_by("millrace_pool_reclaimed_workers", "notice", pool=pool)
                for pool in reports.gauge_by("millrace_pool_reclaimed_workers", "pool")
            },
            reaped=reports.increase("millrace_leases_reaped_total"),
            observations=observations,
        )


def _keys(
    reports: ReportSet, declared: Mapping[str, Model], observations: Observations
) -> list[str]:
    keys: dict[str, None] = dict.fromkeys((*declared, *observations.models))
    for metric in ("millrace_calls_total", "millrace_launches_total", "millrace_items_total"):
        keys |= dict.fromkeys(reports.increase_by(metric, "model"))
    for metric in ("millrace_queue_items", "millrace_queue_calls", "millrace_model_slots"):
        keys |= dict.fromkeys(reports.gauge_by(metric, "model"))
    return [key for key in keys if key]


@dataclass(frozen=True, slots=True)
class _Worker:
    busy: float  #: busy share of its device, 0 to 1
    slots: Mapping[str, float]  #: by model

    @classmethod
    def from_report(cls, report: Report) -> "_Worker":
        """Computes the figures of one worker."""
        alone = ReportSet([report])
        busy = alone.rate("millrace_device_busy_seconds_total")
        return cls(min(1.0, busy), alone.gauge_by("millrace_model_slots", "model"))


def _model(
    reports: ReportSet,
    workers: list[_Worker],
    gpus: Iterable[GpuFacts],
    key: str,
    declared: Model | None,
    observations: Observations,
) -> ModelFacts:
    target_s = reports.gauge("millrace_model_target_seconds", model=key)
    serving = [worker for worker in workers if worker.slots.get(key)]
    its_hands = hands(reports.by_kind("worker").reports, key)
    return ModelFacts(
        key=key,
        target_s=target_s or (declared.answer_target_ms / 1000 if declared else 0.0),
        limits=with_found_rows(declared.limits if declared else Limits(), its_hands),
        calls=_calls(reports, key),
        launches=_launches(reports, key),
        lanes=_lanes(reports, key),
        uses=_uses(reports, key),
        busy=sum(worker.busy for worker in serving) / max(1, len(serving)),
        slots=sum(worker.slots[key] for worker in serving),
        workers=len(serving),
        gpus=tuple(gpu for gpu in gpus if key in gpu.models),
        hands=its_hands,
        queued_calls=reports.gauge("millrace_queue_calls", model=key) or 0.0,
        queued_items=reports.gauge("millrace_queue_items", model=key) or 0.0,
        claimable_s=reports.gauge("millrace_queue_oldest_seconds", model=key) or 0.0,
        capacity_used=_capacity_used(reports, declared) if declared else None,
        drain_s=reports.gauge("millrace_predicted_drain_seconds", model=key) or 0.0,
        stuck=reports.gauge("millrace_jobs_stuck", model=key) or 0.0,
        items=reports.increase_by("millrace_items_total", "outcome", model=key),
        errors=reports.increase_by("millrace_item_errors_total", "code", model=key),
        observed=observations.models.get(key, ModelObservation()),
        generation=Generation.from_reports(reports, key),
        adapters=AdapterLoads.from_reports(reports, key),
    )


def _capacity_used(reports: ReportSet, model: Model) -> float | None:
    """Returns the share of the fullest of a model's pools."""
    used = [reports.gauge("millrace_pool_capacity_used", pool=pool) for pool in model.pools]
    return max((share for share in used if share is not None), default=None)


def _calls(reports: ReportSet, key: str) -> Calls:
    outcomes = reports.increase_by("millrace_calls_total", "outcome", model=key)
    stages = {
        stage: reports.mean("millrace_call_stage_seconds", model=key, stage=stage)
        for stage in STAGES
    }
    met = reports.increase_by("millrace_call_target_total", "met", model=key)
    judged = sum(met.values())
    return Calls(
        count=sum(outcomes.values()),
        answered=outcomes.get("succeeded", 0.0),
        p99_s=reports.quantile("millrace_call_seconds", 0.99, model=key),
        stages_s={stage: mean for stage, mean in stages.items() if mean is not None},
        missed=(judged - met.get("true", 0.0)) / judged if judged else 0.0,
        judged=judged,
        outcomes=outcomes,
    )


def _launches(reports: ReportSet, key: str) -> Launches:
    reasons = reports.increase_by("millrace_launches_total", "reason", model=key)
    units = reports.increase("millrace_launch_units_total", model=key)
    padded = reports.increase("millrace_launch_padded_units_total", model=key)
    prediction = reports.quantile("millrace_launch_prediction_ratio", 0.5, model=key)
    return Launches(
        count=sum(reasons.values()),
        rows=reports.mean("millrace_launch_rows", model=key) or 0.0,
        fill=reports.mean("millrace_launch_fill_ratio", model=key) or 0.0,
        seconds=reports.mean("millrace_launch_seconds", model=key) or 0.0,
        prediction=1.0 if prediction is None else prediction,
        padding=1 - units / padded if padded else 0.0,
        reasons=reasons,
    )


def _lanes(reports: ReportSet, key: str) -> tuple[Lane, ...]:
    """Returns the lanes, longest total wait first."""
    metrics = ("lane_entries_total", "lane_launches_total", "lane_wait_seconds_total")
    lanes = (Lane(*row) for row in _table(reports, key, "lane", metrics))
    return tuple(sorted(lanes, key=lambda lane: -lane.wait_s))


def _uses(reports: ReportSet, key: str) -> tuple[Use, ...]:
    """Returns the uses, largest first."""
    metrics = ("tenant_entries_total", "tenant_units_total", "tenant_device_seconds_total")
    uses = (Use(*row) for row in _table(reports, key, "tenant", metrics))
    return tuple(sorted(uses, key=lambda use: -use.units))


def _table(
    reports: ReportSet, key: str, label: str, metrics: tuple[str, str, str]
) -> Iterator[tuple[str, float, float, float]]:
    """Yields each value of a label that the first counter has, with the increases of all three."""
    first, second, third = (
        reports.increase_by(f"millrace_{metric}", label, model=key) for metric in metrics
    )
    for name, count in first.items():
        yield name, count, second.get(name, 0.0), third.get(name, 0.0)


def _upstreams(reports: ReportSet) -> Iterable[UpstreamFacts]:
    limits = reports.gauge_by("millrace_upstream_limit", "upstream", min)
    opened = reports.gauge_by("millrace_upstream_breaker_open", "upstream")
    requested = reports.increase_by("millrace_upstream_requests_total", "upstream")
    for name in dict.fromkeys((*limits, *opened, *requested)):
        requests = reports.increase_by("millrace_upstream_requests_total", "outcome", upstream=name)
        yield UpstreamFacts(name, requests, limits.get(name, 0.0), opened.get(name, 0.0) > 0)


def _service(reports: ReportSet, name: str, operation: str, unanswered_s: float) -> ServiceFacts:
    metric = f"millrace_{operation}_seconds"
    return ServiceFacts(
        operations=reports.increase(f"{metric}_count"),
        p95_s=reports.quantile(metric, 0.95) or 0.0,
        errors=reports.increase(f"millrace_{name}_errors_total"),
        probe_s=reports.gauge(f"millrace_{name}_probe_seconds") or 0.0,
        unanswered_s=unanswered_s,
    )


def _webhooks(reports: ReportSet) -> WebhookFacts:
    return WebhookFacts(
        tries=reports.increase_by("millrace_webhook_attempts_total", "outcome"),
        mean_s=reports.mean("millrace_webhook_seconds") or 0.0,
        pending=reports.gauge("millrace_webhooks_pending") or 0.0,
        oldest_s=reports.gauge("millrace_webhook_oldest_seconds") or 0.0,
    )
