"""What the roles of processes may not do, whoever runs what SQL as them."""

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.exc import ProgrammingError

from jobs.store import db
from jobs.store.tenancy import EVERYBODY, acting
from jobs.store.tenants import audit
from tests.support.cases import each
from tests.support.stores.transactions import connected, fetch, transact

_CHAIN = (
    "SELECT * FROM audit_chain",
    "UPDATE audit_chain SET n = 9",
    "DELETE FROM audit_chain",
    "INSERT INTO audit_chain VALUES (2, 2, '')",
    "ALTER TABLE audit DISABLE TRIGGER audit_chain",
)
REFUSED = {
    db.API: (
        *_CHAIN,
        "UPDATE audit SET actor = 'x'",
        "DELETE FROM audit",
        "TRUNCATE audit",
        "DELETE FROM api_keys",
        "DELETE FROM tenants",
        "UPDATE results SET output = 'x'",
        "UPDATE items SET input = 'x'",
        "DELETE FROM items",
        "SELECT * FROM items_rest",
        "SELECT * FROM results_rest",
        "SELECT * FROM turns",
        "UPDATE alembic_version SET version_num = 'x'",
        "DELETE FROM workers",
        "SELECT drop_week('items_20200106')",
        "ALTER TABLE jobs DISABLE ROW LEVEL SECURITY",
        "SET LOCAL row_security = off; SELECT * FROM jobs",
        "SET ROLE millrace_worker",
        "DELETE FROM model_versions",
        "UPDATE model_versions SET artifact = 'x'",
        "DELETE FROM rollouts",
        "UPDATE rollout_events SET act = 'x'",
        "UPDATE scale_events SET act = 'x'",
        "DELETE FROM pool_arrivals",
        "DELETE FROM figures",
        "CREATE TABLE mine (n int)",
    ),
    db.WORKER: (
        *_CHAIN,
        "SELECT hash FROM api_keys",
        "SELECT * FROM find_key('x')",
        "INSERT INTO api_keys SELECT * FROM api_keys",
        "UPDATE api_keys SET role = 'admin'",
        "SELECT * FROM audit",
        "UPDATE audit SET actor = 'x'",
        "DELETE FROM audit",
        "TRUNCATE audit",
        "UPDATE webhook_secrets SET sealed = 'x'",
        "INSERT INTO tenants (tenant_id) VALUES ('x')",
        "UPDATE items SET input = 'x'",
        "DROP TABLE items_rest",
        "UPDATE model_versions SET entry = '{}'",
        "INSERT INTO model_routes SELECT * FROM model_routes",
        "INSERT INTO rollouts SELECT * FROM rollouts",
        "UPDATE pool_policies SET policy = '{}'",
        "UPDATE figures SET busy = 1",
        "CREATE TABLE mine (n int)",
    ),
}


@pytest.mark.parametrize("role", [db.API, db.WORKER])
def test_a_role_may_not(database_url: str, role: str) -> None:
    # Each logs in as itself, as it should on a server of one's own: nobody to go back to.
    refused = "permission denied|must be owner|would be affected by row-level"
    with connected(database_url.replace("//millrace@", f"//{role}@")) as its:
        for statement, case in each(REFUSED[role]):
            with case, pytest.raises(ProgrammingError, match=refused), acting(its, EVERYBODY) as tx:
                tx.execute(text(statement))


@pytest.mark.parametrize("role", [db.API, db.WORKER])
def test_both_may_add_to_the_audit_log(database: Engine, database_url: str, role: str) -> None:
    with connected(database_url, role) as engine, acting(engine, "acme") as tx:
        audit.record(tx, tenant="acme", actor="a", act="b", target="c", request_id="d")
    assert [row.act for row in transact(database, audit.page, "acme", after=None, limit=9)] == ["b"]


def test_functions_of_the_owner_look_nowhere_but_where_they_were_made(database: Engine) -> None:
    """Else a caller's own temporary table could stand in for one of ours."""
    query = """SELECT proname, proconfig FROM pg_proc
               WHERE prosecdef AND pronamespace = 'public'::regnamespace"""
    found = fetch(database, query)
    assert {row.proname for row in found} >= {"make_week", "drop_week", "find_key", "any_key"}
    assert {tuple(row.proconfig) for row in found} == {("search_path=public, pg_temp",)}


def test_nobody_and_everybody_are_no_tenants(database: Engine) -> None:
    for name in ("", "*"):
        with pytest.raises(Exception, match="tenants_tenant_id_check"), database.begin() as tx:
            tx.execute(text("INSERT INTO tenants (tenant_id) VALUES (:name)"), {"name": name})
