"""Health of each part of the system."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from threading import Lock, Thread
from typing import Literal

from api.context import Context
from api.dashboard.data.telemetry import TelemetrySnapshot
from api.dashboard.rendering import formatting
from jobs import clock
from jobs.blobs.store import open_store, parse
from jobs.errors import BlobStoreUnavailable, PayloadLost
from jobs.settings import Settings
from jobs.telemetry.reports.reports import ReportSet

Condition = Literal["ok", "slow", "away", "unknown"]

_LAG_S = 0.05
_DATABASE_S = 0.05
_REDIS_S = 0.02
_BLOBS_S = 0.5
_WEBHOOKS_S = 60.0
_PROBE_INTERVAL_S = 15.0
_NO_BLOB = "probe/none"


@dataclass(frozen=True, slots=True)
class Part:
    """Health of one part."""

    name: str
    condition: Condition
    text: str  #: its figures, in words


def parts(
    context: Context,
    telemetry: TelemetrySnapshot,
    workers: Mapping[str, int] | None,
    database_s: float | None,
) -> list[Part]:
    """Returns the health of all parts.

    workers: live workers by state; database_s: duration of their query; None: database unreachable.
    """
    reports = telemetry.reports
    return [
        _api(reports),
        _keeper(reports),
        _workers(workers),
        _database(reports, database_s),
        _redis(reports, telemetry.redis_s),
        _broker(reports, context.settings),
        blobs.part(context.settings),
        _webhooks(reports),
    ]


def _api(reports: ReportSet) -> Part:
    count = len(reports.by_kind("api").reports)
    lag_s = reports.gauge("millrace_event_loop_lag_seconds") or 0.0
    text = f"{count} {_plural('process', count, 'es')}, event loop late by {_ms(lag_s)} at most"
    return Part("API", "slow" if lag_s > _LAG_S else "ok", text if count else "this process")


def _keeper(reports: ReportSet) -> Part:
    count = len(reports.by_kind("keeper").reports)
    if not count:
        unknown = not reports.reports
        return Part("Keeper", "unknown" if unknown else "away", "none reports")
    failed = reports.increase("millrace_keeper_runs_total", outcome="failed")
    text = f"{count} {_plural('process', count, 'es')}"
    text += f", {failed:.0f} failed runs in the last minute" if failed else ""
    return Part("Keeper", "slow" if failed else "ok", text)


def _workers(workers: Mapping[str, int] | None) -> Part:
    if workers is None:
        return Part("Workers", "unknown", "unknown without the database")
    text = ", ".join(f"{count} {state}" for state, count in workers.items()) or "none is running"
    if workers.get("ready"):
        return Part("Workers", "ok", text)
    return Part("Workers", "slow" if workers.get("loading") else "away", text)


def _database(reports: ReportSet, database_s: float | None) -> Part:
    if database_s is None:
        return Part("PostgreSQL", "away", "unreachable")
    probe_s = reports.gauge("millrace_database_probe_seconds")
    p95_s = reports.quantile("millrace_database_transaction_seconds", 0.95)
    errors = reports.increase("millrace_database_errors_total")
    text = [f"answered in {_ms(database_s)}"]
    text += [f"a commit takes {_ms(probe_s)}"] if probe_s else []
    text += [f"transactions p95 {_ms(p95_s)}"] if p95_s else []
    text += [f"{errors:.0f} errors in the last minute"] if errors else []
    slow = errors or max(database_s, probe_s or 0.0) > _DATABASE_S
    return Part("PostgreSQL", "slow" if slow else "ok", ", ".join(text))


def _redis(reports: ReportSet, redis_s: float | None) -> Part:
    if redis_s is None:
        return Part("Redis", "away", "unreachable: calls are refused, jobs continue")
    p95_s = reports.quantile("millrace_redis_seconds", 0.95)
    errors = reports.increase("millrace_redis_errors_total")
    text = [f"answered in {_ms(redis_s)}"]
    text += [f"commands p95 {_ms(p95_s)}"] if p95_s else []
    text += [f"{errors:.0f} errors in the last minute"] if errors else []
    return Part("Redis", "slow" if errors or redis_s > _REDIS_S else "ok", ", ".join(text))


def _broker(reports: ReportSet, settings: Settings) -> Part:
    kind = "RabbitMQ" if settings.broker.startswith("amqp") else "Redis"
    if not reports.by_kind("keeper").reports:
        return Part("Broker", "unknown", f"{kind}; no keeper reports")
    nudges = reports.rate("millrace_nudges_total")
    if failed := reports.increase("millrace_keeper_runs_total", service="nudge", outcome="failed"):
        return Part("Broker", "away", f"{kind}; {failed:.0f} failures to nudge in the last minute")
    return Part("Broker", "ok", f"{kind}, {formatting.rate(nudges)} nudges/s")


def _webhooks(reports: ReportSet) -> Part:
    pending = reports.gauge("millrace_webhooks_pending")
    oldest_s = reports.gauge("millrace_webhook_oldest_seconds") or 0.0
    tries = reports.increase_by("millrace_webhook_attempts_total", "outcome")
    if pending is None:
        return Part("Webhooks", "unknown", "no keeper reports")
    text = f"{pending:.0f} waiting"
    text += f", the oldest due for {formatting.duration(oldest_s)}" if oldest_s else ""
    failed = sum(count for outcome, count in tries.items() if outcome != "delivered")
    text += f", {failed:.0f} failed attempts in the last minute" if failed else ""
    return Part("Webhooks", "slow" if failed or oldest_s > _WEBHOOKS_S else "ok", text)


class BlobProbe:
    """Probe of the blob store, from a thread: a store that is unreachable answers slowly."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._at_s = float("-inf")
        self._result: Part | None = None

    def part(self, settings: Settings) -> Part:
        """Returns the last result, and starts a new probe if it is old."""
        with self._lock:
            if clock.monotonic() > self._at_s + _PROBE_INTERVAL_S:
                self._at_s = clock.monotonic()
                Thread(target=self._probe, args=(settings,), daemon=True).start()
            return self._result or Part("Blob store", "unknown", "not probed yet")

    def _probe(self, settings: Settings) -> None:
        where = parse(settings.files)
        kind = "a folder" if isinstance(where, Path) else "S3"
        if isinstance(where, Path) and not where.exists():  # the first blob creates it
            self._result = Part("Blob store", "ok", f"{kind}, empty")
            return
        since_s = clock.monotonic()
        try:
            open_store(settings.files, settings.s3_endpoint).get(_NO_BLOB)
        except PayloadLost:
            took_s = clock.monotonic() - since_s
            condition: Condition = "slow" if took_s > _BLOBS_S else "ok"
            self._result = Part("Blob store", condition, f"{kind}, answered in {_ms(took_s)}")
        except BlobStoreUnavailable as error:
            self._result = Part("Blob store", "away", str(error))


blobs = BlobProbe()


def _ms(seconds: float) -> str:
    return formatting.milliseconds(seconds)


def _plural(word: str, count: int, ending: str = "s") -> str:
    return word if count == 1 else word + ending
