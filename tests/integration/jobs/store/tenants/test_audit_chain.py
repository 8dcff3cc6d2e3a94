"""The hash chain of the audit log: what is changed, removed or inserted shows."""

import json
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from alembic import command
from alembic.config import Config
from click.testing import Result
from sqlalchemy import Connection, Engine, event, text

from jobs.settings import Settings
from jobs.store import db
from jobs.store.tenancy import acting
from jobs.store.tenants import audit, audit_chain
from migrations.run import migrate
from tests.support.command_line import run_millrace
from tests.support.stores.transactions import connected, transact

MIGRATIONS = Path(__file__).parents[5] / "migrations"
WRITERS, EACH = 16, 25


def add(database: Engine, *acts: str) -> None:
    with database.begin() as tx:
        for act in acts:
            audit.record(
                tx, tenant="acme", actor="key_1", act=act, target="größer: 12:☃",
                detail={"was": act}, request_id="req_1",
            )  # fmt: skip


def check(database: Engine, head: bytes = b"") -> audit_chain.ChainCheck:
    return transact(database, audit_chain.verify, head)


def change(database: Engine, *statements: str) -> None:
    with database.begin() as tx:
        for statement in statements:
            tx.execute(text(statement))


def counted(database: Engine, head: bytes = b"") -> tuple[int, str]:
    found = check(database, head)
    return found.entries, found.problem


def test_entries_follow_one_another_from_the_first(database: Engine) -> None:
    assert check(database) == audit_chain.ChainCheck(0, b"", b"")
    add(database, "one")
    one = check(database)
    assert (one.entries, one.problem) == (1, "")
    assert one.first == one.last != b""
    add(database, "two", "three")
    add(database, "four")
    all = check(database)
    assert (all.entries, all.first, all.problem) == (4, one.first, "")
    assert check(database, one.last) == check(database, all.last) == all


@pytest.mark.parametrize("pages", [3, 1000])
def test_a_check_reads_so_many_links_at_a_time_and_none_that_were_rolled_back(
    database: Engine, monkeypatch: pytest.MonkeyPatch, pages: int
) -> None:
    monkeypatch.setattr(audit_chain, "_PAGE", pages)
    with database.connect() as tx:
        audit.record(tx, tenant="a", actor="b", act="c", target="d", request_id="e")
        tx.rollback()
    add(database, *map(str, range(9)))
    assert counted(database) == (9, "")


_INSERT = """
    INSERT INTO audit (at, tenant_id, actor, act, target, detail, request_id)
    SELECT at, tenant_id, actor, 'forged', target, detail, request_id FROM audit WHERE id = 2
"""
_PAST_THE_TRIGGER = ("SET LOCAL session_replication_role = replica", _INSERT)
_LINK_BETWEEN = (
    *_PAST_THE_TRIGGER,
    "UPDATE audit_chain SET n = n + 100 WHERE n > 2",
    "UPDATE audit_chain SET n = n - 99 WHERE n > 100",
    """INSERT INTO audit_chain SELECT 3, a.id, audit_hash(c.hash, a)
       FROM audit a, audit_chain c WHERE a.act = 'forged' AND c.n = 2""",
)
_BEFORE_THE_FIRST = (*_PAST_THE_TRIGGER, "INSERT INTO audit_chain VALUES (-7, 6, '')")


def _removed(n: int) -> tuple[str, str]:
    return f"DELETE FROM audit WHERE id = {n}", f"DELETE FROM audit_chain WHERE n = {n}"


_CLOSE_THE_GAP = (
    *_removed(3),
    "UPDATE audit_chain SET n = n + 100 WHERE n > 3",
    "UPDATE audit_chain SET n = n - 101 WHERE n > 100",
)


FAULTS = [
    (["UPDATE audit SET detail = '{}' WHERE id = 3"], 2, "entry 3 was changed"),
    (["UPDATE audit SET at = at - interval '1 s' WHERE id = 1"], 0, "entry 1 was changed"),
    (["UPDATE audit SET at = '-infinity' WHERE id = 3"], 2, "entry 3 was changed"),
    (["UPDATE audit SET tenant_id = 'x', actor = 'y' WHERE id > 2"], 2, "entry 3 was changed"),
    (["UPDATE audit SET actor = actor || act, act = '' WHERE id = 3"], 2, "entry 3 was changed"),
    (["UPDATE audit_chain SET hash = '' WHERE n = 3"], 2, "entry 3 was changed"),
    (["DELETE FROM audit WHERE id = 1"], 0, "entry 1 was removed"),
    (["DELETE FROM audit WHERE id = 3"], 2, "entry 3 was removed"),
    (["DELETE FROM audit WHERE id = 5"], 4, "entry 5 was removed"),
    (_removed(1), 0, "the first entry was removed"),
    (_removed(3), 2, "the entry after 2 was removed"),
    (_CLOSE_THE_GAP, 2, "entry 4 was changed, or the entry after 2 was removed"),
    (_PAST_THE_TRIGGER, 5, "entry 6 is not in the chain"),
    (_LINK_BETWEEN, 3, "entry 6 was inserted: entry 3 followed without it"),
    (_BEFORE_THE_FIRST, 0, "the first entry was removed"),
]


@pytest.mark.parametrize(("statements", "follow", "said"), FAULTS)
def test_the_first_fault_is_named(
    database: Engine, statements: Sequence[str], follow: int, said: str
) -> None:
    add(database, "one", "two", "three", "four", "five")
    before = check(database)
    change(database, *statements)
    found = check(database, before.last)
    assert found.problem.startswith(said), found.problem
    assert found.entries == follow


def test_a_kept_hash_shows_that_the_end_was_removed(database: Engine) -> None:
    add(database, "one", "two", "three")
    kept = check(database).last
    change(database, *_removed(3))
    assert check(database).problem == ""  # what no chain shows by itself
    assert "the entry after 2 was removed" in check(database, kept).problem
    add(database, "another")
    assert "was removed" in check(database, kept).problem


def test_a_kept_hash_shows_that_the_chain_was_written_anew(database: Engine) -> None:
    add(database, "one", "two", "three")
    kept = check(database).last
    change(
        database,
        "CREATE TABLE kept AS SELECT * FROM audit",
        "TRUNCATE audit, audit_chain",
        """INSERT INTO audit OVERRIDING SYSTEM VALUE
           SELECT id, at, tenant_id, actor, 'other', target, detail, request_id FROM kept""",
    )
    assert counted(database) == (3, "")
    assert "written anew" in check(database, kept).problem


def test_many_writers_make_one_chain(database_url: str, database: Engine) -> None:
    def write(engine: Engine, writer: int) -> None:
        for n in range(EACH):
            with acting(engine, "acme") as tx:
                for part in range(1 + n % 2):
                    audit.record(
                        tx, tenant="acme", actor=f"key_{writer}", act="x", target=f"{n}.{part}",
                        request_id="r",
                    )  # fmt: skip

    with connected(database_url, db.API, WRITERS) as engine, ThreadPoolExecutor(WRITERS) as pool:
        list(pool.map(partial(write, engine), range(WRITERS)))
    assert counted(database) == (WRITERS * sum(1 + n % 2 for n in range(EACH)), "")


def test_a_writer_that_goes_on_after_its_entry_holds_up_no_other(database: Engine) -> None:
    """The chain's lock is taken at the commit, after every lock of a row: nobody deadlocks."""
    with database.connect() as slow:
        audit.record(slow, tenant="a", actor="slow", act="c", target="d", request_id="e")
        with database.begin() as tx:
            tx.execute(text("SET LOCAL lock_timeout = '30 s'"))
            audit.record(tx, tenant="a", actor="quick", act="c", target="d", request_id="e")
        assert check(database).entries == 1
        slow.commit()
    assert counted(database) == (2, "")


def go_back_before_the_chain(database: Engine) -> None:
    """Takes the migration that made the chain back."""
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    config.attributes["engine"] = database
    [file] = MIGRATIONS.glob("versions/*_audit_chain.py")
    command.downgrade(config, import_module(f"migrations.versions.{file.stem}").down_revision)


def test_entries_from_before_the_chain_are_linked_by_the_migration(database: Engine) -> None:
    go_back_before_the_chain(database)
    add(database, "one", "two")  # as an older release does
    migrate(database)
    add(database, "three")
    assert counted(database) == (3, "")
    change(database, "UPDATE audit SET actor = 'x' WHERE id = 1")
    assert check(database).problem.startswith("entry 1 was changed")


def test_entries_may_be_added_while_the_migration_links_older_ones(database: Engine) -> None:
    go_back_before_the_chain(database)
    add(database, *map(str, range(10)))
    free: list[int] = []

    def look(connection: Connection, cursor: Any, statement: str, *_: object) -> None:
        """Adds an entry, as another process, after each step until the table is locked."""
        if "audit_chain" not in statement or len(free) > 1:
            return
        own = cursor.connection.cursor()
        own.execute(
            "SELECT FROM pg_locks WHERE pid = pg_backend_pid() AND relation = 'audit'::regclass "
            "AND mode NOT IN ('AccessShareLock', 'RowExclusiveLock')"
        )
        if not own.rowcount:
            own.execute("SELECT count(*) FROM audit_chain")
            free.extend(own.fetchone())
            with ThreadPoolExecutor(1) as other:
                other.submit(add, database, "meanwhile").result()

    event.listen(database, "after_cursor_execute", look)
    try:
        migrate(database)
    finally:
        event.remove(database, "after_cursor_execute", look)
    assert free == [0, 11]  # the entry of the first look is among them
    add(database, "after")
    assert counted(database) == (13, "")


def run_verify(settings: Settings, *arguments: str, status: int = 0) -> Result:
    environ = {name: value for name, value in settings.environment().items() if value}
    return run_millrace("audit", "--verify", *arguments, status=status, **environ)


def test_the_command_prints_hashes_and_the_fault(database: Engine, settings: Settings) -> None:
    add(database, "one", "two", "three")
    shown = run_verify(settings).output
    assert shown.startswith("3 entries follow one another\n")
    first, last = re.findall(r"[0-9a-f]{64}", shown)
    asked = json.loads(run_verify(settings, "--head", last, "--json").stdout)
    assert asked == {"entries": 3, "first": first, "last": last, "problem": ""}
    assert "has the hash" in run_verify(settings, "--head", "0" * 64, status=1).output
    change(database, "DELETE FROM audit WHERE id = 2")
    assert "Error: the audit log: entry 2 was removed" in run_verify(settings, status=1).output
    broken = json.loads(run_verify(settings, "--json", status=1).stdout)
    assert (broken["entries"], broken["problem"]) == (1, "entry 2 was removed")


def test_the_command_refuses_what_is_no_hash(settings: Settings) -> None:
    assert "64 hexadecimal digits" in run_verify(settings, "--head", "12", status=2).output
    assert "--head needs --verify" in run_millrace("audit", "--head", "0" * 64, status=2).output
