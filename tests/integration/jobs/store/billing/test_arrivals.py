"""Arrivals of calls and items, as the database has them, and as `millrace history export` writes
them."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner
from sqlalchemy import Engine

from jobs import clock
from jobs.models.pricing import Price
from jobs.store.billing import arrivals, ledger
from jobs.store.billing.ledger import Minute
from jobs.store.scaling import arrivals as pool_arrivals
from ops.cli.main import main
from ops.simulation import history
from tests.support.stores.store import ECHO, claim, post, settle
from tests.support.stores.transactions import transact

MINUTE = datetime(2026, 11, 21, 12, 30, tzinfo=UTC)
AT_S = int(MINUTE.timestamp())
DAY = timedelta(days=1)


def bill(database: Engine, *minutes: Minute) -> None:
    transact(database, ledger.bill_calls, minutes, Price())


def test_calls_are_summed_up_over_tenants_and_classes(database: Engine) -> None:
    later = MINUTE + timedelta(minutes=1)
    bill(
        database,
        Minute(MINUTE, "alice", "echo", "1", "standard", 5, 1, 50, 1000),
        Minute(MINUTE, "bob", "echo", "1", "interactive", 4, 0, 40, 500),
        Minute(later, "bob", "echo", "1", "standard", 1, 0, 7, 10),
        Minute(MINUTE - DAY, "bob", "echo", "1", "standard", 1, 0, 7, 10),
    )
    found = transact(database, arrivals.calls, MINUTE, MINUTE + DAY)
    assert sorted(found, key=lambda it: it.at_s) == [
        arrivals.Minute(AT_S, "echo", "1", 10, 90.0, 1500.0),
        arrivals.Minute(AT_S + 60, "echo", "1", 1, 7.0, 10.0),
    ]


def test_items_count_when_their_job_came_with_the_mean_of_those_that_ran(database: Engine) -> None:
    post(database, *["a"] * 10)
    settle(database, claim(database))
    post(database, *["b"] * 30)
    now = clock.now()
    found = transact(database, arrivals.items, now - DAY, now + DAY)
    assert sum(its.count for its in found) == 40
    assert {(its.model, its.version) for its in found} == {("echo", "1")}
    assert sum(its.units for its in found) == pytest.approx(40)


def test_a_history_is_exported(
    database: Engine, database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bill(database, Minute(MINUTE, "alice", "echo", "1", "standard", 5, 1, 50, 2_000_000))
    with database.begin() as tx:
        pool_arrivals.add(tx, "gpu", AT_S, 2.0)
        pool_arrivals.add(tx, "gpu", AT_S, 3.0)
    monkeypatch.setenv("MILLRACE_DATABASE_URL", database_url)
    path = tmp_path / "arrivals.csv"
    words = ["history", "export", str(path), "--from", "2026-11-21", "--to", "2026-11-22"]
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 0, done.output
    assert "2 rows from 2026-11-21 00:00 to 2026-11-22 00:00 UTC" in done.output
    call, work = history.read(path)
    assert call == history.Row(AT_S, 60, "calls", "echo@1", 6, 50, 2.0)
    assert (work.kind, work.name, work.count, work.lasts_s) == ("work", "gpu", 2.5, 300)
    backwards = [*words[:3], "--from", "2026-11-22", "--to", "2026-11-21"]
    assert "--from must be before --to" in CliRunner().invoke(main, backwards).output
    assert ECHO.key == "echo@1"
