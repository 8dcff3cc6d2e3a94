"""Whether each part of the system is there, and how it does."""

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
from jobs.telemetry.reports.reports import Reading

Condition = Literal["ok", "slow", "away", "unknown"]

_LAG_S = 0.05
_DATABASE_S = 0.05
_REDIS_S = 0.02
_BLOBS_S = 0.5
_WEBHOOKS_S = 60.0
_PROBE_EVERY_S = 15.0
_NO_BLOB = "probe/none"


@dataclass(frozen=True, slots=True)
class Part:
    """said: its figures, in words."""

    name: str
    condition: Condition
    said: str


def parts(
    shared: Context,
    told: TelemetrySnapshot,
    workers: Mapping[str, int] | None,
    database_s: float | None,
) -> list[Part]:
    """workers: how many live, by state, and database_s: how long the database took to tell; None:
    it is away."""
    reading = told.reading
    return [
        _api(reading),
        _keeper(reading),
        _workers(workers),
        _database(reading, database_s),
        _redis(reading, told.redis_s),
        _broker(reading, shared.settings),
        blobs.part(shared.settings),
        _webhooks(reading),
    ]


def _api(reading: Reading) -> Part:
    count = len(reading.of("api").reports)
    lag_s = reading.gauge("millrace_event_loop_lag_seconds") or 0.0
    said = f"{count} {_plural('process', count, 'es')}, event loop late by {_ms(lag_s)} at most"
    return Part("API", "slow" if lag_s > _LAG_S else "ok", said if count else "this process")


def _keeper(reading: Reading) -> Part:
    count = len(reading.of("keeper").reports)
    if not count:
        unknown = not reading.reports
        return Part("Keeper", "unknown" if unknown else "away", "none has reported lately")
    failed = reading.increase("millrace_keeper_runs_total", outcome="failed")
    said = f"{count} {_plural('process', count, 'es')}"
    said += f", {failed:.0f} failed runs in the last minute" if failed else ""
    return Part("Keeper", "slow" if failed else "ok", said)


def _workers(workers: Mapping[str, int] | None) -> Part:
    if workers is None:
        return Part("Workers", "unknown", "only the database knows")
    said = ", ".join(f"{count} {state}" for state, count in workers.items()) or "none lives"
    if workers.get("ready"):
        return Part("Workers", "ok", said)
    return Part("Workers", "slow" if workers.get("loading") else "away", said)


def _database(reading: Reading, database_s: float | None) -> Part:
    if database_s is None:
        return Part("PostgreSQL", "away", "it can't be reached from here")
    probe_s = reading.gauge("millrace_database_probe_seconds")
    p95_s = reading.quantile("millrace_database_transaction_seconds", 0.95)
    errors = reading.increase("millrace_database_errors_total")
    said = [f"answered in {_ms(database_s)}"]
    said += [f"a commit takes {_ms(probe_s)}"] if probe_s else []
    said += [f"transactions p95 {_ms(p95_s)}"] if p95_s else []
    said += [f"{errors:.0f} errors in the last minute"] if errors else []
    slow = errors or max(database_s, probe_s or 0.0) > _DATABASE_S
    return Part("PostgreSQL", "slow" if slow else "ok", ", ".join(said))


def _redis(reading: Reading, redis_s: float | None) -> Part:
    if redis_s is None:
        return Part("Redis", "away", "calls are refused until it is back; jobs go on")
    p95_s = reading.quantile("millrace_redis_seconds", 0.95)
    errors = reading.increase("millrace_redis_errors_total")
    said = [f"answered in {_ms(redis_s)}"]
    said += [f"commands p95 {_ms(p95_s)}"] if p95_s else []
    said += [f"{errors:.0f} errors in the last minute"] if errors else []
    return Part("Redis", "slow" if errors or redis_s > _REDIS_S else "ok", ", ".join(said))


def _broker(reading: Reading, settings: Settings) -> Part:
    kind = "RabbitMQ" if settings.broker.startswith("amqp") else "Redis"
    if not reading.of("keeper").reports:
        return Part("Broker", "unknown", f"{kind}; no keeper tells of it")
    nudges = reading.rate("millrace_nudges_total")
    if failed := reading.increase("millrace_keeper_runs_total", service="nudge", outcome="failed"):
        return Part("Broker", "away", f"{kind}; {failed:.0f} failures to nudge in the last minute")
    return Part("Broker", "ok", f"{kind}, {formatting.rate(nudges)} nudges/s")


def _webhooks(reading: Reading) -> Part:
    pending = reading.gauge("millrace_webhooks_pending")
    oldest_s = reading.gauge("millrace_webhook_oldest_seconds") or 0.0
    tries = reading.increase_by("millrace_webhook_attempts_total", "outcome")
    if pending is None:
        return Part("Webhooks", "unknown", "no keeper tells of them")
    said = f"{pending:.0f} waiting"
    said += f", the oldest due for {formatting.duration(oldest_s)}" if oldest_s else ""
    failed = sum(count for outcome, count in tries.items() if outcome != "delivered")
    said += f", {failed:.0f} failed tries in the last minute" if failed else ""
    return Part("Webhooks", "slow" if failed or oldest_s > _WEBHOOKS_S else "ok", said)


class BlobProbe:
    """Asks the blob store for what isn't there, now and then and beside everything else: one that
    is away takes its time to say so."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._at_s = float("-inf")
        self._found: Part | None = None

    def part(self, settings: Settings) -> Part:
        with self._lock:
            if clock.monotonic() > self._at_s + _PROBE_EVERY_S:
                self._at_s = clock.monotonic()
                Thread(target=self._ask, args=(settings,), daemon=True).start()
            return self._found or Part("Blob store", "unknown", "it is being asked")

    def _ask(self, settings: Settings) -> None:
        where = parse(settings.files)
        kind = "a folder" if isinstance(where, Path) else "S3"
        if isinstance(where, Path) and not where.exists():  # the first blob makes it
            self._found = Part("Blob store", "ok", f"{kind}, nothing is stored yet")
            return
        since_s = clock.monotonic()
        try:
            open_store(settings.files, settings.s3_endpoint).get(_NO_BLOB)
        except PayloadLost:
            took_s = clock.monotonic() - since_s
            condition: Condition = "slow" if took_s > _BLOBS_S else "ok"
            self._found = Part("Blob store", condition, f"{kind}, answered in {_ms(took_s)}")
        except BlobStoreUnavailable as error:
            self._found = Part("Blob store", "away", str(error))


blobs = BlobProbe()


def _ms(seconds: float) -> str:
    return formatting.milliseconds(seconds)


def _plural(word: str, count: int, ending: str = "s") -> str:
    return word if count == 1 else word + ending
