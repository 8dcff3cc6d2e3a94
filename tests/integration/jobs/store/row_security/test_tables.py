"""Row-level security shows the api one tenant's rows: roles, policies, and what is written."""

from uuid import UUID

import pytest
from fastapi.testclient import TestClient
from psycopg.errors import CheckViolation
from sqlalchemy import Engine, text
from sqlalchemy.exc import ProgrammingError

from api.app import create_app
from jobs import ids
from jobs.intake.idempotency_key import Claim
from jobs.settings import Settings
from jobs.store import db, partitions
from jobs.store.db import Tx
from jobs.store.jobs import idempotency
from jobs.store.tenancy import EVERYBODY, acting
from tests.integration.jobs.store.row_security.tenants import (
    ALICE,
    LEAVES,
    MALLORY,
    TENANTS_TABLES,
    everything,
)
from tests.support.cases import each
from tests.support.stores.store import count
from tests.support.stores.transactions import fetch, scalar, scalars, transact


def security(tx: Tx) -> dict[str, bool]:
    tables = tx.scalars(text(TENANTS_TABLES)).all()
    return {t: bool(tx.scalar(text(f"SELECT row_security_active('{t}')"))) for t in tables}


def test_row_security_is_active_on_connections_of_apis(settings: Settings, api: Engine) -> None:
    app = create_app(settings)
    with TestClient(app):
        for engine in (app.state.context.database, api):  # also of one that takes large bodies
            active = transact(engine, security)
            assert {"jobs", "items", "results", "api_keys", "audit"} <= active.keys()
            assert all(active.values()), active


@pytest.mark.parametrize("role", [db.API, db.WORKER])
def test_roles_of_processes_own_nothing_and_are_not_special(database: Engine, role: str) -> None:
    rights = "rolsuper, rolbypassrls, rolcreaterole, rolcreatedb, rolreplication"
    [found] = fetch(database, f"SELECT {rights} FROM pg_roles WHERE rolname = '{role}'")
    assert not any(found)
    owned = """
        SELECT relname::text FROM pg_class WHERE pg_get_userbyid(relowner) = :role
        UNION SELECT proname::text FROM pg_proc WHERE pg_get_userbyid(proowner) = :role
        UNION SELECT nspname::text FROM pg_namespace WHERE pg_get_userbyid(nspowner) = :role
    """
    member_of = """
        SELECT g.rolname::text FROM pg_auth_members m
        JOIN pg_roles r ON r.oid = m.member JOIN pg_roles g ON g.oid = m.roleid
        WHERE r.rolname = :role
    """
    for query in (owned, member_of):
        assert scalars(database, query, {"role": role}) == []


def unguarded(tx: Tx) -> list[str]:
    query = f"""
        SELECT c.relname FROM pg_class c
        WHERE c.relname IN ({TENANTS_TABLES.replace("ORDER BY 1", "")})
          AND NOT (c.relrowsecurity AND EXISTS (
              SELECT FROM pg_policy p WHERE p.polrelid = c.oid
                AND 'millrace_api'::regrole = ANY(p.polroles)
                AND pg_get_expr(p.polqual, p.polrelid) LIKE '%millrace.tenant%'))
    """
    return list(tx.scalars(text(query)))


def is_allowed(tx: Tx, table: str, right: str) -> bool:
    """Returns True if the api has this right on a table."""
    query = text(f"SELECT has_table_privilege('{db.API}', '{table}', '{right}')")
    return bool(tx.scalar(query))


def test_every_table_with_a_tenant_has_a_policy(database: Engine) -> None:
    with database.begin() as tx:
        assert unguarded(tx) == []
        tx.execute(text("CREATE TABLE forgotten (tenant_id text)"))
        assert unguarded(tx) == ["forgotten"]
        tx.rollback()


def test_of_partitions_the_api_may_add_to_those_of_items_alone(database: Engine) -> None:
    rights = ("SELECT", "INSERT", "UPDATE", "DELETE", "TRUNCATE", "REFERENCES", "TRIGGER")
    with database.connect() as tx:
        leaves = list(tx.scalars(text(LEAVES)))
        held = {leaf: [it for it in rights if is_allowed(tx, leaf, it)] for leaf in leaves}
    assert len([leaf for leaf in leaves if leaf.startswith("items_")]) > 1
    for leaf, found in held.items():
        assert found == (["INSERT"] if leaf.startswith("items_") else []), leaf


# -- what shows, and what can be changed


def test_without_a_tenant_no_row_shows(database: Engine, api: Engine, alices: UUID) -> None:
    for named in (None, "", MALLORY):
        with api.begin() as tx:
            if named is not None:
                tx.execute(text("SELECT set_config('millrace.tenant', :t, true)"), {"t": named})
            for table in _readable(tx):
                assert tx.scalar(text(f"SELECT count(*) FROM {table}")) == 0, table
    with acting(api, ALICE) as tx:
        assert all(tx.scalar(text(f"SELECT count(*) FROM {table}")) for table in _readable(tx))


def _readable(tx: Tx) -> list[str]:
    tables = tx.scalars(text(TENANTS_TABLES)).all()
    found = [table for table in tables if is_allowed(tx, table, "SELECT")]
    assert len(found) > 10
    return found


def test_a_tenant_is_forgotten_with_its_transaction(api: Engine, alices: UUID) -> None:
    for _ in range(3):
        with acting(api, ALICE) as tx:
            assert tx.scalar(text("SELECT count(*) FROM jobs")) == 2
        assert scalar(api, "SELECT count(*) FROM jobs") == 0


def test_no_row_of_another_tenant_is_written(database: Engine, api: Engine, alices: UUID) -> None:
    before = everything(database)
    with acting(database, EVERYBODY) as tx:
        tables = [t for t in tx.scalars(text(TENANTS_TABLES)).all() if is_allowed(tx, t, "INSERT")]
    assert len(tables) > 8
    refused = pytest.raises(ProgrammingError, match="row-level security")
    for table, case in each(tables):
        forged = _forged(database, table)
        with case, refused, acting(api, MALLORY) as tx:
            tx.exec_driver_sql(forged)
    assert everything(database) == before


def _forged(database: Engine, table: str) -> str:
    """A copy of a row of Alice's, made by Mallory: PostgreSQL asks the policy first."""
    row = scalar(database, f"SELECT row_to_json(t)::text FROM {table} t LIMIT 1")
    columns = f"SELECT * FROM json_populate_record(NULL::{table}, $forged${row}$forged$)"
    return f"INSERT INTO {table} OVERRIDING SYSTEM VALUE {columns}"


def test_a_row_is_not_given_to_another_tenant(database: Engine, api: Engine, alices: UUID) -> None:
    with pytest.raises(ProgrammingError, match="row-level security"), acting(api, ALICE) as tx:
        tx.execute(text("UPDATE jobs SET tenant_id = 'mallory'"))
    assert count(database, "jobs") == 2


def test_items_of_another_tenant_are_not_copied_in(database: Engine, api: Engine) -> None:
    for named in (MALLORY, ""):
        with pytest.raises(CheckViolation, match="its_own"), acting(api, named) as tx:
            _copy(tx, ALICE)
    assert count(database, "items") == 0
    with acting(api, ALICE) as tx:
        _copy(tx, ALICE)
    assert count(database, "items") == 1


def _copy(tx: Tx, tenant: str) -> None:
    id = ids.new()
    leaf = partitions.leaf(tx, "items", id)
    statement = f"COPY {leaf} (job_id, tenant_id, seq, input) FROM STDIN"
    with db.cursor(tx).copy(statement) as copy:
        copy.write(f'{id}\t{tenant}\t0\t"x"\n')


# -- keys that several tenants have


def test_two_tenants_may_use_one_idempotency_key_at_once(api: Engine, database: Engine) -> None:
    one, other = Claim(ALICE, "k", b"1"), Claim(MALLORY, "k", b"2")
    with acting(api, ALICE) as alice, acting(api, MALLORY) as mallory:
        idempotency.lock(alice, one)
        idempotency.lock(mallory, other)
        idempotency.store(alice, one, ids.new(), b"{}")
        idempotency.store(mallory, other, ids.new(), b"{}")
    assert count(database, "idempotency_keys") == 2
