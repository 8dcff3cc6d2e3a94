"""Tenants of a benchmark's platform, and their rows as the owner of the database reads them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from sqlalchemy import Engine, text

from jobs import ids
from jobs.api_keys import NewKey
from jobs.store import db
from jobs.store.tenants import api_keys
from ops.bench.harness.errors import BenchError
from ops.bench.harness.platform import database_of
from ops.bench.load.client import Client
from ops.supervisor.platform import Platform

_WEIGHT = text("""
    INSERT INTO tenants (tenant_id, weight) VALUES (:tenant, :weight)
    ON CONFLICT (tenant_id) DO UPDATE SET weight = :weight
""")
_LIMIT = text("""
    INSERT INTO limits (tenant_id, model, key_id, requests_per_s, tokens_per_s, calls_in_flight)
    VALUES (:tenant, :model, :key, :requests_per_s, :tokens_per_s, :calls_in_flight)
""")
_NOW = text("SELECT clock_timestamp()")
_BACKLOGGED = text("""
    SELECT DISTINCT tenant_id FROM slices WHERE state = 'ready' AND tenant_id = ANY(:tenants)
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


@contextmanager
def tenants_of(platform: Platform, names: Iterable[str]) -> Iterator["Tenants"]:
    """Creates tenants with a key each."""
    with database_of(platform) as database:
        yield Tenants(platform, database, names)


class Tenants:
    """Tenants by name, with the secret and the id of each one's key."""

    def __init__(self, platform: Platform, database: Engine, names: Iterable[str]) -> None:
        self._url, self.database = platform.url, database
        self.keys: dict[str, str] = {}
        self.key_ids: dict[str, str] = {}
        for name in names:
            new = NewKey(name)
            with database.begin() as tx:
                row = api_keys.create(tx, new)
            self.keys[name], self.key_ids[name] = new.secret, ids.show("key", row.id)

    def weigh(self, weights: Mapping[str, float]) -> None:
        """Sets weights, before the tenants have work."""
        for tenant, weight in weights.items():
            self._change(_WEIGHT, tenant, weight=weight)

    def limit(self, name: str, limits: Mapping[str, float], model: str = "", key: str = "") -> None:
        """Limits calls of a tenant: of one model ("": all) and one key ("": all)."""
        self._change(_LIMIT, name, model=model, key=key, **limits)

    def _change(self, query: Any, tenant: str, **values: Any) -> None:
        with self.database.begin() as tx:
            tx.execute(query, {"tenant": tenant, **values})
            db.notify_keys(tx, tenant)

    def client(self, tenant: str) -> Client:
        """Client with a tenant's key."""
        return Client(self._url, key=self.keys[tenant])

    def now(self) -> datetime:
        """Time of the database's clock, which jobs are timed with."""
        found: datetime = self._rows(_NOW)[0][0]
        return found

    def backlogged(self, tenants: Sequence[str]) -> set[str]:
        """Tenants with slices that are not claimed."""
        return {row.tenant_id for row in self._rows(_BACKLOGGED, tenants=tenants)}

    def device_s(self, names: Sequence[str], since: datetime, until: datetime) -> dict[str, float]:
        """Device time, by tenant, of the launches of that time."""
        found = self._rows(_DEVICE, tenants=names, since=since, until=until)
        return dict.fromkeys(names, 0.0) | {row.tenant_id: row.device_s for row in found}

    def span_s(self, tenants: Sequence[str], since: datetime, items: int) -> float:
        """Time from the first job's creation to the last one's end, of those created since.

        Raises BenchError unless all of these items are done.
        """
        row = self._rows(_SPAN, tenants=tenants, since=since)[0]
        if row.broken or row.items != items:
            raise BenchError(f"{row.items} of {items} items; {row.broken} jobs not complete")
        return float(row.span_s)

    def _rows(self, query: Any, **values: Any) -> Sequence[Any]:
        with self.database.begin() as tx:
            return tx.execute(query, values).all()
