"""Tenants of a benchmark's platform, and what its tables say of each: as the owner of the database
sees them, who sees everybody."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import Any

from sqlalchemy import text

from jobs import clock, ids
from jobs.api_keys import NewKey
from jobs.store import db
from jobs.store.tenants import api_keys
from ops.bench.harness.errors import BenchError
from ops.bench.load.ndjson_client import Stream
from ops.supervisor.platform import Platform

_LOOK_S = 0.1
_STALLED_S = 120.0

_WEIGHT = text("""
    INSERT INTO tenants (tenant_id, weight) VALUES (:tenant, :weight)
    ON CONFLICT (tenant_id) DO UPDATE SET weight = :weight
""")
_LIMIT = text("""
    INSERT INTO limits (tenant_id, model, key_id, requests_per_s, tokens_per_s, calls_in_flight)
    VALUES (:tenant, :model, :key, :requests_per_s, :tokens_per_s, :calls_in_flight)
""")
_NOW = text("SELECT clock_timestamp()")
_OPEN = text("SELECT count(*) FROM jobs WHERE finished_at IS NULL AND tenant_id = ANY(:tenants)")
_BACKLOGGED = text("""
    SELECT DISTINCT tenant_id FROM slices WHERE state = 'ready' AND tenant_id = ANY(:tenants)
""")
_JOBS = text("""
    SELECT id, state, total, extract(epoch FROM finished_at - created_at)::float8 AS took_s
    FROM jobs
    WHERE tenant_id = ANY(:tenants) AND created_at >= :since AND created_at < :until
    ORDER BY created_at
""")
_RIGHT = text("""
    SELECT count(*) FROM results JOIN items USING (job_id, seq)
    WHERE job_id = ANY(:jobs) AND output = upper(input)
""")
# A launch belongs to the moment when it started; each of its items has its share of it.
_DEVICE = text("""
    SELECT r.tenant_id, sum(r.device_us) / 1e6::float8 AS device_s
    FROM results r JOIN launches l ON l.id = r.launch_id
    WHERE r.tenant_id = ANY(:tenants) AND l.started_at >= :since AND l.started_at < :until
    GROUP BY r.tenant_id
""")
_SPAN = text("""
    SELECT extract(epoch FROM max(finished_at) - min(created_at))::float8 AS span_s,
           count(*) FILTER (WHERE state <> 'completed') AS broken, sum(total) AS items
    FROM jobs WHERE tenant_id = ANY(:tenants) AND created_at >= :since
""")


class Tenants:
    """keys, key_ids: by name; a tenant is there once it has a key."""

    def __init__(self, platform: Platform, names: Iterable[str] = ()) -> None:
        self.url = platform.url
        self._database = db.connect(platform.settings.database_url, pool_size=1)
        self.keys: dict[str, str] = {}
        self.key_ids: dict[str, str] = {}
        for name in names:
            self._add(name)

    def _add(self, name: str) -> None:
        asked = NewKey(name)
        with self._database.begin() as tx:
            row = api_keys.create(tx, asked)
        self.keys[name], self.key_ids[name] = asked.secret, ids.show("key", row.id)

    def weigh(self, weights: Mapping[str, float]) -> None:
        """Before they have work."""
        for tenant, weight in weights.items():
            with self._database.begin() as tx:
                tx.execute(_WEIGHT, {"tenant": tenant, "weight": weight})
                db.notify_keys(tx, tenant)

    def limit(
        self, tenant: str, limits: Mapping[str, float], model: str = "", key: str = ""
    ) -> None:
        """Calls of this tenant: of one model, or ("") of all; of one key, or of all of them."""
        with self._database.begin() as tx:
            tx.execute(_LIMIT, {"tenant": tenant, "model": model, "key": key, **limits})
            db.notify_keys(tx, tenant)

    def stream(self, tenant: str) -> Stream:
        return Stream(self.url, key=self.keys[tenant])

    # -- what the tables say

    def now(self) -> datetime:
        """By the database's clock, which jobs are timed with."""
        found: datetime = self._run(_NOW)[0][0]
        return found

    def await_end(self, tenants: Sequence[str]) -> None:
        """Until none of their jobs is open."""
        deadline_s = clock.monotonic() + _STALLED_S
        while self._run(_OPEN, tenants=tenants)[0][0]:
            if clock.monotonic() > deadline_s:
                raise BenchError(f"jobs are still open after {_STALLED_S:g} s")
            clock.sleep(_LOOK_S)

    def backlogged(self, tenants: Sequence[str]) -> set[str]:
        """Those that have slices which nobody took yet."""
        return {row.tenant_id for row in self._run(_BACKLOGGED, tenants=tenants)}

    def job_ms(self, tenants: Sequence[str], since: datetime, until: datetime) -> list[float]:
        """From its creation to its end, of each job that was created in that time. All have ended.
        Raises BenchError where an item has not the right result."""
        jobs = self._run(_JOBS, tenants=tenants, since=since, until=until)
        broken = [job for job in jobs if job.state != "completed"]
        items = sum(job.total for job in jobs)
        right = self._run(_RIGHT, jobs=[job.id for job in jobs])[0][0]
        if broken or right != items:
            raise BenchError(f"{right} of {items} items are right; {len(broken)} jobs not complete")
        return [job.took_s * 1000 for job in jobs]

    def device_s(
        self, tenants: Sequence[str], since: datetime, until: datetime
    ) -> dict[str, float]:
        """Device time of the launches of that time, by tenant."""
        found = self._run(_DEVICE, tenants=tenants, since=since, until=until)
        return dict.fromkeys(tenants, 0.0) | {row.tenant_id: row.device_s for row in found}

    def span_s(self, tenants: Sequence[str], since: datetime, items: int) -> float:
        """From the first job's creation to the last one's end, of those created since; all of
        these items are done."""
        row = self._run(_SPAN, tenants=tenants, since=since)[0]
        if row.broken or row.items != items:
            raise BenchError(f"{row.items} of {items} items; {row.broken} jobs not complete")
        span_s: float = row.span_s
        return span_s

    def _run(self, query: Any, **values: Any) -> Sequence[Any]:
        with self._database.begin() as tx:
            return tx.execute(query, values).all()

    def __enter__(self) -> "Tenants":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._database.dispose()
