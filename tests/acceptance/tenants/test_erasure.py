"""A tenant is erased on a platform that runs, and whose keeper is killed meanwhile."""

from typing import Any

import httpx
from sqlalchemy import Engine, text

from ops.supervisor.platform import Platform
from tests.support.children import kill_and_replace, until
from tests.support.clients import bearer
from tests.support.keys import make_key
from tests.support.platforms import CLOSED
from tests.support.wait import eventually

NAMED = {"tenants", "api_keys", "audit", "usage", "spend", "spend_told"}

PLATFORM = CLOSED


def test_it_ends_whatever_dies_in_between(platform: Platform, database: Engine) -> None:
    leaving, staying = (
        bearer(make_key(database, name, role="admin")[0]) for name in ("leaving", "staying")
    )
    http = httpx.Client(base_url=platform.url)
    for headers in (leaving, staying):
        for n in range(10):
            lines = [{"custom_id": "leaving", "input": f"leaving {n}" * 10_000}] * 1
            body: dict[str, Any] = {"model": "echo", "items": lines}
            more = {"Idempotency-Key": f'"{n}"'}
            assert http.post("/jobs", json=body, headers=headers | more).is_success
    slow = {"model": "batchstring", "items": ["leaving"] * 20_000}
    assert http.post("/jobs", json=slow, headers=leaving).is_success
    call = {"model": "echo", "input": "leaving"}
    assert http.post("/infer", json=call, headers=leaving | {"Idempotency-Key": '"k"'}).is_success

    assert http.delete("/tenants/leaving", headers=staying).status_code == 202
    eventually(lambda: http.get("/jobs", headers=leaving).status_code == 401)
    assert http.post("/infer", json=call, headers=leaving).status_code == 401
    for _ in range(2):
        kill_and_replace(platform, "keeper")

    def complete() -> bool:
        found = http.get("/tenants/leaving/erasure", headers=staying)
        return bool(found.raise_for_status().json()["complete"])

    until(platform, complete)
    with database.connect() as tx:
        tables = tx.scalars(
            text("""SELECT c.relname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
                    WHERE a.attname = 'tenant_id' AND c.relkind IN ('r', 'p')
                      AND c.relnamespace = 'public'::regnamespace""")
        ).all()
        held = {
            table
            for table in tables
            if tx.scalar(text(f"SELECT count(*) FROM {table} WHERE tenant_id = 'leaving'"))
        }
    assert held <= NAMED
    assert len(http.get("/jobs", headers=staying).json()["data"]) == 10
    http.close()
