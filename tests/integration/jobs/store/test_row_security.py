"""Isolation, the second time: row-level security shows the api one tenant's rows, whatever the
store's own filters say."""

import ast
import io
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from fastapi.testclient import TestClient
from psycopg.errors import CheckViolation
from sqlalchemy import Engine, event, text
from sqlalchemy.exc import IntegrityError, NoResultFound, OperationalError, ProgrammingError

from api.app import create_app
from jobs import ids
from jobs.api_keys import NewKey
from jobs.errors import Conflict, MillraceError
from jobs.identity import Limit
from jobs.intake.idempotency_key import Claim
from jobs.models.builtin_models import SAMPLES
from jobs.models.routing.route import Route, Share
from jobs.settings import Settings
from jobs.store import db, partitions
from jobs.store.billing import quota, spend, usage
from jobs.store.db import Tx
from jobs.store.jobs import (
    copies,
    detail,
    files,
    idempotency,
    insert,
    read,
    responses,
    search,
    transfers,
    verbs,
)
from jobs.store.jobs.read import JobRow, Span
from jobs.store.jobs.responses import NewResponse
from jobs.store.jobs.search import Filter
from jobs.store.monitoring import diagnostics
from jobs.store.monitoring import workers as fleet
from jobs.store.queue import checkpoints, workers
from jobs.store.registry import routes, snapshot, versions
from jobs.store.tenancy import EVERYBODY, acting
from jobs.store.tenants import api_keys, audit, erasure, limits, stats, tenants
from jobs.store.webhooks import deliveries, endpoints, secrets
from jobs.usecases.submit import Order, submit
from tests.support.store import claim, count, settle

ALICE, MALLORY = "alice", "mallory"
MARK = "alice-only"  # in everything that is Alice's
LEAVES = """
    SELECT c.relname FROM pg_class c JOIN pg_inherits i ON i.inhrelid = c.oid
    WHERE c.relkind = 'r'
"""
TENANTS_TABLES = f"""
    SELECT c.relname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
    WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p')
      AND a.attname = 'tenant_id' AND c.relname NOT IN ({LEAVES})
    ORDER BY 1
"""


@pytest.fixture
def api(database_url: str) -> Iterator[Engine]:
    """As an api process connects."""
    engine = db.connect(database_url, pool_size=2, role=db.API)
    yield engine
    engine.dispose()


@pytest.fixture
def unfiltered(api: Engine) -> Engine:
    """The same, with every filter of the store by tenant taken out."""
    event.listen(api, "before_cursor_execute", _unfilter, retval=True)
    return api


_FILTER = re.compile(r"(\w+\.)?tenant_id = %\(tenant\)s(::\w+)?")


def _unfilter(
    connection: Any, cursor: Any, statement: str, parameters: Any, context: Any, many: bool
) -> tuple[str, Any]:
    return _FILTER.sub("true", statement), parameters


@pytest.fixture
def alices(database: Engine) -> UUID:
    """A job of hers that has ended, with everything that a tenant can have."""
    order = Order(
        "echo", labels={"who": MARK}, metadata={"who": MARK}, webhook_url=f"https://{MARK}.example/"
    )
    lines = [{"custom_id": f"{MARK}-{n}", "input": MARK} for n in range(20)]
    held = Claim(ALICE, "key", b"alice")
    id: UUID = submit(database, SAMPLES, ALICE, order, array=lines, claim=held).id
    settle(database, claim(database))
    other = submit(database, SAMPLES, ALICE, order, array=lines).id
    with database.begin() as tx:
        verbs.cancel(tx, other)
        verbs.retry(tx, other)
        verbs.cancel(tx, other)
        secrets.insert_secret(tx, ALICE, MARK.encode(), shown=False)
        endpoint = (ALICE, f"https://{MARK}.example/")
        endpoints.record_failure(tx, endpoint, gone=False, threshold=9, first_s=1, most_s=1)
        audit.record(tx, tenant=ALICE, actor=MARK, act="x", target=MARK, request_id="req_1")
        for statement in _MORE:
            tx.execute(text(statement), {"alice": ALICE, "mark": MARK, "job": id})
    with database.connect() as tx:
        for table in tx.scalars(text(TENANTS_TABLES)).all():
            assert _rows(tx, table, ALICE), f"the test has nothing in {table}"
    return id


_MORE = (
    "INSERT INTO attempts VALUES (:job, :alice, 0, 1, :mark, 1, now(), now())",
    "INSERT INTO checkpoints VALUES (:job, 0, 0, 0, :alice, '{1}', :mark)",
    "INSERT INTO prepared VALUES (:job, 0, :alice, '1', :mark)",
    "INSERT INTO deletions VALUES ('00000000-0000-0000-0000-000000000000', :alice, 1)",
    "INSERT INTO tenants (tenant_id) VALUES (:alice) ON CONFLICT DO NOTHING",
    """INSERT INTO api_keys (id, tenant_id, name, hint, hash, role, scopes)
       SELECT '00000000-0000-0000-0000-000000000007', :alice, :mark, :mark, '\\x00', 'tenant', '{}'
    """,
    "INSERT INTO limits (tenant_id, model, job_items) VALUES (:alice, :mark, 5)",
    "INSERT INTO turns VALUES (:mark, :alice, 1)",
    "INSERT INTO spend VALUES (:alice, date_trunc('month', now(), 'UTC'), 5)",
    "INSERT INTO spend_told VALUES (:alice, date_trunc('month', now(), 'UTC'), 80)",
    "UPDATE tenants SET soft_cap = 1, hard_cap = 1, webhook_url = :mark WHERE tenant_id = :alice",
    """INSERT INTO webhook_deliveries (tenant_id, url, type, about)
       VALUES (:alice, :mark, 'usage.threshold', '{}')""",
    """INSERT INTO files (id, tenant_id, purpose, filename, bytes, sha256, key)
       VALUES ('00000000-0000-0000-0000-00000000000f', :alice, 'batch', :mark, 1, '\\x00',
               :mark)""",
    """INSERT INTO responses (id, tenant_id, background, request, input, ended, expires_at)
       VALUES ('00000000-0000-0000-0000-000000000011', :alice, false, '{}', :mark, '{}',
               now() + interval '1 day')""",
    "INSERT INTO transfers VALUES (:job, :alice, 'export', 1)",
    """INSERT INTO model_routes (name, tenant_id, splits, salt, updated_by)
       VALUES (:mark, :alice, '[]', '', '')""",
    """UPDATE jobs SET dialect = 'openai', asked = '{"request": "' || :mark || '"}'
       WHERE id = :job""",
)


def _rows(tx: Tx, table: str, tenant: str) -> list[str]:
    query = text(f"SELECT t::text FROM {table} t WHERE tenant_id = :tenant ORDER BY 1")
    return list(tx.scalars(query, {"tenant": tenant}))


def everything(database: Engine) -> dict[str, list[str]]:
    """All that is Alice's."""
    with database.connect() as tx:
        return {t: _rows(tx, t, ALICE) for t in tx.scalars(text(TENANTS_TABLES)).all()}


# -- the connection, the role, the tables


def security(tx: Tx) -> dict[str, bool]:
    tables = tx.scalars(text(TENANTS_TABLES)).all()
    return {t: bool(tx.scalar(text(f"SELECT row_security_active('{t}')"))) for t in tables}


def test_row_security_is_active_on_the_apis_own_connection(settings: Settings) -> None:
    app = create_app(settings)
    with TestClient(app), app.state.context.database.connect() as tx:
        active = security(tx)
        assert {"jobs", "items", "results", "api_keys", "audit"} <= active.keys()
        assert all(active.values()), active


def test_row_security_is_active_for_a_process_of_the_apis_that_takes_large_bodies(
    api: Engine,
) -> None:
    with api.connect() as tx:
        assert all(security(tx).values())


@pytest.mark.parametrize("role", [db.API, db.WORKER])
def test_the_roles_of_processes_own_nothing_and_are_nobody_special(
    database: Engine, role: str
) -> None:
    with database.connect() as tx:
        named = {"role": role}
        found = tx.execute(
            text("""SELECT rolsuper, rolbypassrls, rolcreaterole, rolcreatedb, rolreplication
                    FROM pg_roles WHERE rolname = :role"""),
            named,
        ).one()
        assert not any(found)
        owned = text("""
            SELECT relname::text FROM pg_class WHERE pg_get_userbyid(relowner) = :role
            UNION SELECT proname::text FROM pg_proc WHERE pg_get_userbyid(proowner) = :role
            UNION SELECT nspname::text FROM pg_namespace WHERE pg_get_userbyid(nspowner) = :role
        """)
        assert tx.scalars(owned, named).all() == []
        member = text("""
            SELECT g.rolname::text FROM pg_auth_members m
            JOIN pg_roles r ON r.oid = m.member JOIN pg_roles g ON g.oid = m.roleid
            WHERE r.rolname = :role
        """)
        assert tx.scalars(member, named).all() == []


def unguarded(tx: Tx) -> list[str]:
    return list(
        tx.scalars(
            text(f"""
                SELECT c.relname FROM pg_class c
                WHERE c.relname IN ({TENANTS_TABLES.replace("ORDER BY 1", "")})
                  AND NOT (c.relrowsecurity AND EXISTS (
                      SELECT FROM pg_policy p WHERE p.polrelid = c.oid
                        AND 'millrace_api'::regrole = ANY(p.polroles)
                        AND pg_get_expr(p.polqual, p.polrelid) LIKE '%millrace.tenant%'))
            """)
        )
    )


def test_every_table_with_a_tenant_has_a_policy(database: Engine) -> None:
    with database.begin() as tx:
        assert unguarded(tx) == []
        tx.execute(text("CREATE TABLE forgotten (tenant_id text)"))
        assert unguarded(tx) == ["forgotten"]
        tx.rollback()


def test_of_partitions_the_api_may_add_to_those_of_items_and_nothing_else(
    database: Engine,
) -> None:
    rights = "SELECT,INSERT,UPDATE,DELETE,TRUNCATE,REFERENCES,TRIGGER"
    with database.connect() as tx:
        leaves = list(tx.scalars(text(LEAVES)))
        held = {
            leaf: {
                right
                for right in rights.split(",")
                if tx.scalar(text(f"SELECT has_table_privilege('{db.API}', '{leaf}', '{right}')"))
            }
            for leaf in leaves
        }
    assert len([leaf for leaf in leaves if leaf.startswith("items_")]) > 1
    for leaf, found in held.items():
        assert found == ({"INSERT"} if leaf.startswith("items_") else set()), leaf


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
    may = "SELECT has_table_privilege(current_user, '{}', 'SELECT')"
    found = [table for table in tables if tx.scalar(text(may.format(table)))]
    assert len(found) > 10
    return found


def test_a_tenant_is_forgotten_with_its_transaction(api: Engine, alices: UUID) -> None:
    for _ in range(3):
        with acting(api, ALICE) as tx:
            assert tx.scalar(text("SELECT count(*) FROM jobs")) == 2
        with api.begin() as tx:
            assert tx.scalar(text("SELECT count(*) FROM jobs")) == 0


def test_a_row_of_another_tenant_is_not_written(
    database: Engine, api: Engine, alices: UUID
) -> None:
    before = everything(database)
    with acting(database, EVERYBODY) as tx:
        tables = [
            table
            for table in tx.scalars(text(TENANTS_TABLES)).all()
            if tx.scalar(text(f"SELECT has_table_privilege('{db.API}', '{table}', 'INSERT')"))
        ]
    assert len(tables) > 8
    for table in tables:
        forged = _forged(database, table)
        with (
            pytest.raises(ProgrammingError, match="row-level security"),
            acting(api, MALLORY) as tx,
        ):
            tx.exec_driver_sql(forged)
    assert everything(database) == before


def _forged(database: Engine, table: str) -> str:
    """A copy of a row of Alice's, made by Mallory: PostgreSQL asks the policy first."""
    with database.connect() as tx:
        row = tx.scalar(text(f"SELECT row_to_json(t)::text FROM {table} t LIMIT 1"))
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


# -- the store without its filters

Deed = Callable[[Tx, JobRow], object]


def _copied_items(tx: Tx, job: JobRow) -> object:
    mine = replace(job, tenant_id=MALLORY)
    return list(copies.items(tx.engine, mine, unsuccessful=False))


def _result_lines(tx: Tx, job: JobRow) -> object:
    mine = replace(job, tenant_id=MALLORY)
    chunks = read.result_lines(tx.engine, mine, Span(-1, 19, True), "u", None)
    try:
        return list(chunks)
    except Conflict:
        return None


def _one(tx: Tx, id: UUID) -> object:
    try:
        return read.one(tx, MALLORY, id)
    except NoResultFound:
        return None


KEY = UUID(int=7)  # Alice's


def _new_job() -> tuple[insert.NewJob, insert.JobItems]:
    new = insert.NewJob(
        ids.new(), MALLORY, model=SAMPLES.resolve("echo"), custom_ids=False, expires_in_s=None
    )
    rows = io.BytesIO(f'{new.id}\t{MALLORY}\t0\t\\N\t\\N\t\\N\t"x"\n'.encode())
    return new, insert.JobItems(rows, [0, 1])


HERS = Claim(MALLORY, "key", b"mallory")
DEEDS: dict[str, Deed] = {
    "audit.record": lambda tx, job: audit.record(
        tx, tenant=MALLORY, actor="m", act="x", target="y", request_id="req_2"
    ),
    "audit.page": lambda tx, job: audit.page(tx, MALLORY, after=None, limit=100),
    "idempotency.lock_batch": lambda tx, job: idempotency.lock_batch(tx, MALLORY, MARK),
    "idempotency.find_batch": lambda tx, job: idempotency.find_batch(tx, MALLORY, MARK, "openai"),
    "erasure.begin": lambda tx, job: erasure.begin(tx, MALLORY),
    "erasure.remaining": lambda tx, job: erasure.remaining(tx, MALLORY),
    "endpoints.close_breaker": lambda tx, job: endpoints.close_breaker(
        tx, (MALLORY, job.webhook_url)
    ),
    "copies.items": _copied_items,
    "files.delete": lambda tx, job: files.delete(tx, MALLORY, UUID(int=15)),
    "files.abandon": lambda tx, job: files.abandon(tx, MALLORY, UUID(int=15)),
    "files.get": lambda tx, job: files.get(tx, MALLORY, UUID(int=15)),
    "files.reserve": lambda tx, job: files.reserve(
        tx, MALLORY, ids.new(), purpose="x", filename="x", key="x", key_id="", within_s=1
    ),
    "files.complete": lambda tx, job: files.complete(
        tx, MALLORY, UUID(int=15), bytes=1, sha256=b"x", expires_in_s=None
    ),
    "files.page": lambda tx, job: files.page(tx, MALLORY, purpose=None, after=None, limit=9),
    "checkpoints.read_item": lambda tx, job: checkpoints.read_item(tx, job.id, 0),
    "responses.store": lambda tx, job: responses.store(
        tx, NewResponse(ids.new(), MALLORY, UUID(int=17), b"{}", b"[]", b"{}"), 1
    ),
    "responses.get": lambda tx, job: responses.get(tx, MALLORY, UUID(int=17)),
    "responses.chain": lambda tx, job: responses.chain(tx, MALLORY, UUID(int=17)),
    "responses.delete": lambda tx, job: responses.delete(tx, MALLORY, UUID(int=17)),
    "limits.get": lambda tx, job: limits.get(tx, MALLORY),
    "limits.put": lambda tx, job: limits.put(tx, MALLORY, [Limit(job_items=1)]),
    "spend.check_cap": lambda tx, job: spend.check_cap(tx, MALLORY),
    "spend.cap_reached": lambda tx, job: spend.cap_reached(tx, MALLORY),
    "quota.check": lambda tx, job: quota.check(tx, MALLORY, [Limit(queued_items=1)], "echo", 1, 1),
    "quota.check_file": lambda tx, job: quota.check_file(tx, MALLORY, [Limit(stored_bytes=1)], 1),
    "spend.endpoint": lambda tx, job: spend.endpoint(tx, MALLORY),
    "spend.set_endpoint": lambda tx, job: spend.set_endpoint(tx, MALLORY, None),
    "usage.sums": lambda tx, job: usage.sums(
        tx, MALLORY, ("model",), date(2000, 1, 1), date(2100, 1, 1)
    ),
    "search.counts": lambda tx, job: search.counts(tx, MALLORY, Filter()),
    "search.matching_ids": lambda tx, job: search.matching_ids(
        tx, MALLORY, Filter(), search.now(tx), after=None, limit=9
    ),
    "search.now": lambda tx, job: search.now(tx),
    "search.page": lambda tx, job: search.page(tx, MALLORY, Filter(text=MARK), limit=9),
    "stats.page": lambda tx, job: stats.page(tx, MALLORY, limit=9),
    "detail.attempts": lambda tx, job: detail.attempts(tx, MALLORY, job.id, 0),
    "detail.error_codes": lambda tx, job: detail.error_codes(tx, MALLORY, job.id),
    "detail.items": lambda tx, job: detail.items(tx, MALLORY, job.id, limit=9),
    "detail.launches": lambda tx, job: detail.launches(tx, MALLORY, job.id, 9),
    "detail.runs": lambda tx, job: detail.runs(tx, MALLORY, job.id, 9),
    "detail.find_seq": lambda tx, job: detail.find_seq(tx, MALLORY, job.id, f"{MARK}-3"),
    "detail.slice_states": lambda tx, job: detail.slice_states(tx, MALLORY, job.id),
    "detail.slices": lambda tx, job: detail.slices(tx, MALLORY, job.id, limit=9),
    "deliveries.by_endpoint": lambda tx, job: deliveries.by_endpoint(tx, MALLORY, 9),
    "deliveries.page": lambda tx, job: deliveries.page(
        tx, MALLORY, state=None, url=None, after=None, limit=9
    ),
    "deliveries.of_tenant": lambda tx, job: deliveries.of_tenant(tx, MALLORY),
    "idempotency.find": lambda tx, job: idempotency.find(tx, HERS),
    "idempotency.lock": lambda tx, job: idempotency.lock(tx, HERS),
    "idempotency.try_lock": lambda tx, job: idempotency.try_lock(tx, HERS),
    "idempotency.store": lambda tx, job: idempotency.store(tx, HERS, job.id, b"{}"),
    "api_keys.create": lambda tx, job: api_keys.create(tx, NewKey(MALLORY)),
    "api_keys.get": lambda tx, job: api_keys.get(tx, MALLORY, KEY),
    "api_keys.page": lambda tx, job: api_keys.page(tx, MALLORY, None, 100),
    "api_keys.rotate": lambda tx, job: api_keys.rotate(tx, MALLORY, KEY, 0.0)[0],
    "api_keys.revoke": lambda tx, job: api_keys.revoke(tx, MALLORY, KEY),
    "tenants.get": lambda tx, job: tenants.get(tx, MALLORY),
    "tenants.page": lambda tx, job: tenants.page(tx, MALLORY, "", 100),
    "tenants.put": lambda tx, job: tenants.put(
        tx, MALLORY, weight=9.0, soft_cap=None, hard_cap=None
    ),
    "tenants.is_erased": lambda tx, job: tenants.is_erased(tx, MALLORY),
    "tenants.terms": lambda tx, job: tenants.terms(tx, MALLORY).limits,
    "read.owner": lambda tx, job: read.owner(tx, job.id),
    "read.get": lambda tx, job: read.get(tx, MALLORY, job.id),
    "detail.item": lambda tx, job: detail.item(tx, MALLORY, job.id, 0),
    "read.one": lambda tx, job: _one(tx, job.id),
    "read.result_lines": _result_lines,
    "read.span": lambda tx, job: read.span(
        tx, MALLORY, job.id, 20, after=-1, gaps=True, outcome="succeeded", limit=5
    ).until == 4 or None,
    "read.get_many": lambda tx, job: read.get_many(tx, [job.id]),
    "diagnostics.error_counts": lambda tx, job: diagnostics.error_counts(tx, job.id, MALLORY),
    "diagnostics.count_own_ahead": lambda tx, job: diagnostics.count_own_ahead(tx, job) or None,
    "diagnostics.count_others_ahead": lambda tx, job: (
        diagnostics.count_others_ahead(tx, job) or None
    ),
    "diagnostics.locks": lambda tx, job: diagnostics.locks(tx).waiting or None,
    "diagnostics.observations": lambda tx, job: diagnostics.observations(tx, 60).receivers,
    "diagnostics.open_versions": lambda tx, job: diagnostics.open_versions(tx, job.id, MALLORY),
    "diagnostics.slice_counts": lambda tx, job: (
        diagnostics.slice_counts(tx, job.id, MALLORY).ready or None
    ),
    "insert.insert_job": lambda tx, job: insert.insert_job(tx, *_new_job()),
    "insert.insert_jobs": lambda tx, job: insert.insert_jobs(tx, [_new_job()]),
    "insert.copy_items": lambda tx, job: insert.copy_items(tx, [_new_job()]),
    **{
        f"verbs.{verb.__name__}": partial(lambda verb, tx, job: verb(tx, job.id, MALLORY), verb)
        for verb in (
            verbs.cancel, verbs.delete, verbs.end_cancelled, verbs.pause, verbs.resume, verbs.retry
        )
    },
    "transfers.insert_validating": lambda tx, job: transfers.insert_validating(
        tx, insert.SubmittedJob(ids.new(), MALLORY, source="{}")
    ),
    "secrets.insert_secret": lambda tx, job: secrets.insert_secret(
        tx, MALLORY, b"m", shown=True
    ),
    "secrets.active": lambda tx, job: secrets.active(tx, MALLORY),
    "secrets.lock": lambda tx, job: secrets.lock(tx, MALLORY),
    "secrets.mark_shown": lambda tx, job: secrets.mark_shown(tx, 1),
    "secrets.tenants_after": lambda tx, job: secrets.tenants_after(tx, "", 10),
    "secrets.of_tenants": lambda tx, job: secrets.of_tenants(tx, [ALICE]),
    "secrets.replace_sealed": lambda tx, job: secrets.replace_sealed(tx, {1: b"other"}),
    "secrets.retire": lambda tx, job: secrets.retire(tx, MALLORY, 0.0),
    "deliveries.of_job": lambda tx, job: deliveries.of_job(tx, MALLORY, job.id),
    "deliveries.redeliver": lambda tx, job: deliveries.redeliver(tx, MALLORY, job.id),
    "read.running": lambda tx, job: list(read.running(tx, MALLORY, 9)),
    "read.open_states": lambda tx, job: read.open_states(tx, MALLORY),
    "monitoring.workers.page": lambda tx, job: fleet.page(tx),
    "monitoring.workers.one": lambda tx, job: fleet.one(tx, 1),
    "monitoring.workers.held": lambda tx, job: fleet.held(tx, [1]),
    "monitoring.workers.launches": lambda tx, job: fleet.launches(tx, [1], 9),
    "monitoring.workers.request_drain": lambda tx, job: fleet.request_drain(tx, 4711, True),
    "queue.workers.model_statuses": lambda tx, job: workers.model_statuses(tx, 60),
    "routes.all_of": lambda tx, job: routes.all_of(tx),
    "routes.get": lambda tx, job: routes.get(tx, MARK, ALICE),
    "routes.put": lambda tx, job: routes.put(
        tx, Route("other", (Share("1", 100),), MALLORY), "mallory"
    ),
    "routes.remove": lambda tx, job: routes.remove(tx, MARK, ALICE),
    "snapshot.read": lambda tx, job: snapshot.read(tx),
    "versions.unfinished_jobs": lambda tx, job: versions.unfinished_jobs(tx, MARK, "1"),
}  # fmt: skip
"""Each function of the store that the api calls, as Mallory calls it about Alice's job."""

NO_QUERIES = {
    # By a credential, before anybody knows whose it is:
    "api_keys.find", "api_keys.any_key", "api_keys.record_use",
    # By the random id of a session, of nobody's rows:
    "ended_sessions.add", "ended_sessions.has_ended",
    "search.Filter", "search.MOST_COUNTED", "read.RECENT_S", "read.Span", "insert.NewJob",
    "read.TRACEBACK", "read.TRACEBACK_OF",
    "insert.SubmittedJob", "insert.JobItems", "idempotency.StoredResponse", "quota.reserve",
    "notifier.WorkNotifier", "diagnostics.set_statement_timeout", "detail.ListedItem",
    "detail.SliceRun", "verbs.ARCHIVED_BYTES", "monitoring.workers.HeldModel",
    "queue.workers.LaunchRow", "usage.BY", "usage.By",
    "tenancy.EVERYBODY", "tenancy.act", "tenancy.acting", "queue.workers.NOWHERE",
    "queue.workers.LOADING_STATES",
    "queue.workers.ModelStatus", "detail.ItemRow", "observations.ModelObservation",
    "observations.Observations", "observations.LockWait",
    # Versions of models, which no tenant owns; the follower reads for its process:
    "versions.all_of", "versions.get", "versions.in_state", "versions.insert_version",
    "versions.lock_registry", "versions.set_entry", "versions.set_state",
    "aliases.all_of", "aliases.get", "aliases.put", "aliases.remove", "artifacts.get",
    "artifacts.described", "artifacts.signatures_of", "versions.set_probe",
    "follower.RegistryFollower",
    "rollouts.ID_PREFIX", "rollouts.accept_cost", "rollouts.apply", "rollouts.events",
    "rollouts.get", "rollouts.page", "rollouts.start",
    # Pools, which no tenant owns:
    "gauges.workers", "policies.PolicyRow", "policies.EventRow", "policies.add_event",
    "policies.decide", "policies.events", "policies.get", "policies.lock", "policies.page",
    "policies.put", "policies.remove", "policies.set_paused",
    # Figures of models, workers and pools:
    "history.read",
    "responses.MOST_IN_CHAIN", "responses.NewResponse", "responses.ResponseRow",
}  # fmt: skip
REVEALS = {name for name in DEEDS if name.startswith(("read.", "deliveries."))} | {
    "spend.endpoint", "usage.sums", "limits.get", "files.get", "files.page", "files.delete",
    "idempotency.find_batch", "audit.page", "api_keys.get", "checkpoints.read_item",
    "responses.get", "responses.chain", "responses.delete", "api_keys.page", "tenants.get",
    "tenants.page", "secrets.tenants_after", "secrets.of_tenants",
    "tenants.terms", "search.page", "search.matching_ids", "search.counts", "stats.page",
    "detail.attempts", "detail.items", "detail.runs", "detail.find_seq",
    "detail.slice_states", "detail.slices", "routes.all_of", "routes.get",
}  # fmt: skip
REVEALS -= {"read.open_states", "read.running"}  # Alice's job has ended


@pytest.mark.parametrize("name", DEEDS)
def test_without_the_stores_filters_no_foreign_row_shows_and_none_is_changed(
    name: str, database: Engine, unfiltered: Engine, alices: UUID
) -> None:
    with database.connect() as tx:
        job = read.one(tx, ALICE, alices)
    before = everything(database)
    found = _done(unfiltered, DEEDS[name], job)
    assert MARK not in repr(found)
    if name in REVEALS:
        assert not found
    assert everything(database) == before


def _done(api: Engine, deed: Deed, job: JobRow) -> object:
    """What it returns; of an error, what it says."""
    try:
        with acting(api, MALLORY) as tx:
            return deed(tx, job)
    except (MillraceError, IntegrityError) as error:
        return str(error) if MARK in str(error) else None


@pytest.mark.parametrize("name", sorted(REVEALS))
def test_where_rows_are_not_secured_those_functions_do_show_them(
    name: str, database: Engine, alices: UUID
) -> None:
    """What makes the test above able to fail."""
    with database.connect() as tx:
        job = read.one(tx, ALICE, alices)
    event.listen(database, "before_cursor_execute", _unfilter, retval=True)
    with acting(database, MALLORY) as tx:
        assert DEEDS[name](tx, job)


def test_every_function_of_the_store_that_the_api_calls_is_among_those() -> None:
    found = {name for name in store_functions() if not name.startswith("db.")}
    assert found - NO_QUERIES == DEEDS.keys()


def store_functions() -> set[str]:
    """Names that api/ and the use cases in jobs/ take from jobs/store/, as `module.name`."""
    root = Path(__file__).parents[4]
    found: set[str] = set()
    for path in (*root.glob("api/**/*.py"), *root.glob("jobs/usecases/**/*.py")):
        nodes = list(ast.walk(ast.parse(path.read_text())))
        modules: dict[str, str] = {}
        for node in nodes:
            if not isinstance(node, ast.ImportFrom) or not str(node.module).startswith(STORE):
                continue
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                if root.joinpath(*name.split(".")).with_suffix(".py").exists():
                    modules[alias.asname or alias.name] = _short(name)
                else:
                    found.add(f"{_short(str(node.module))}.{alias.name}")
        found |= {
            f"{modules[node.value.id]}.{node.attr}"
            for node in nodes
            if isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.value.id in modules
        }
    assert len(found) > 50
    return {name for name in found if not name.split(".")[-1].endswith(("Row", "Rows"))}


STORE = "jobs.store"


def _short(module: str) -> str:
    """Without its sub-package, where no other has a module of that name."""
    below = module.removeprefix("jobs.store.")
    return below if below.endswith(".workers") else below.rpartition(".")[2]


# -- keys that several tenants have


def test_two_tenants_may_use_the_same_idempotency_key_at_once(
    api: Engine, database: Engine
) -> None:
    one, other = Claim(ALICE, "k", b"1"), Claim(MALLORY, "k", b"2")
    with acting(api, ALICE) as alice, acting(api, MALLORY) as mallory:
        idempotency.lock(alice, one)
        idempotency.lock(mallory, other)
        idempotency.store(alice, one, ids.new(), b"{}")
        idempotency.store(mallory, other, ids.new(), b"{}")
    assert count(database, "idempotency_keys") == 2


def test_a_connection_that_is_not_in_its_role_is_refused(database_url: str) -> None:
    """As where a pooler drops what it doesn't know of a connection's parameters."""

    def drop(dialect: Any, record: Any, arguments: Any, parameters: dict[str, Any]) -> None:
        del parameters["options"]

    engine = db.connect(database_url, pool_size=1, role=db.API)
    event.listen(engine, "do_connect", drop)
    with pytest.raises(OperationalError, match="acts as millrace, not as millrace_api"):
        engine.connect()
    engine.dispose()
