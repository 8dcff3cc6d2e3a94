"""Figures over time: written once a minute, averaged over ten, deleted when they are old."""

from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import Engine, text

from jobs.store import db
from jobs.store.db import Tx
from jobs.store.monitoring import history
from jobs.telemetry.reports.figures import EVERYTHING, Figures
from tests.support.stores.store import count
from tests.support.stores.transactions import execute, scalars, transact

MODEL = "model:m@1"
AGES_S = 60 * 10_007  # a step that two minutes hardly ever lie on both sides of


def write(database: Engine, minutes_ago: int, subject: str = MODEL, **figures: float) -> None:
    """Writes a minute of the past."""
    its = Figures(**figures)
    transact(database, history.add_minute, {EVERYTHING: its, subject: its})
    back = "UPDATE figures SET at = at - :ago WHERE step = 60 AND at > now() - interval '1 min'"
    execute(database, back, {"ago": timedelta(minutes=minutes_ago)})


def old(database: Engine, *rows: tuple[float, int]) -> None:
    """Writes rows of so many days ago and of so long a step."""
    for days, step in rows:
        execute(
            database,
            "INSERT INTO figures (subject, step, at, calls_s) "
            "VALUES (:its, :step, now() - :ago, :days)",
            {"its": MODEL, "step": step, "ago": timedelta(days=days), "days": days},
        )


def read(tx: Tx, minutes: int = 30, step_s: int = 60) -> list[Figures]:
    return [row.figures for row in history.read(tx, MODEL, 60 * minutes, step_s)]


def test_a_minute_is_written_once_whatever_the_number_of_keepers(database: Engine) -> None:
    with database.begin() as tx:
        assert not history.is_written(tx)
        for calls_s in (1.0, 9.0):
            its = Figures(calls_s=calls_s)
            history.add_minute(tx, {EVERYTHING: its, MODEL: its})
        assert history.is_written(tx)
        assert [its.calls_s for its in read(tx)] == [1.0]


def test_points_are_of_one_subject_and_in_order_with_gaps_left_out(database: Engine) -> None:
    write(database, 3, calls_s=3.0, waiting=2.0)
    write(database, 1, calls_s=1.0)
    write(database, 2, "worker:1", calls_s=8.0)
    rows = transact(database, history.read, MODEL, 1800, 60)
    assert [row.figures.calls_s for row in rows] == [3.0, 1.0]
    assert rows[1].at - rows[0].at == timedelta(minutes=2)
    assert rows[1].figures.waiting is None


def test_latencies_are_weighted_by_calls_and_of_queues_the_longest_counts(database: Engine) -> None:
    write(database, 3, calls_s=0.0)
    write(database, 2, calls_s=9.0, waiting=2.0, p50_s=0.1, p95_s=0.2)
    write(database, 1, calls_s=1.0, waiting=50.0, p50_s=1.1, p95_s=1.2)
    [its] = transact(database, read, step_s=AGES_S)
    assert its.calls_s == pytest.approx(10 / 3)
    assert its.waiting == 50.0
    assert (its.p50_s, its.p95_s) == pytest.approx((0.2, 0.3))


def test_ten_minutes_that_passed_get_a_row_and_those_to_come_none(database: Engine) -> None:
    since_bin = (transact(database, db.now) - datetime.fromtimestamp(0, UTC)) % timedelta(
        minutes=10
    )
    first = since_bin // timedelta(minutes=1) + 1  # minutes ago: the end of the last ten
    for minutes_ago in (first + 12, first + 4, first):
        write(database, minutes_ago, calls_s=float(minutes_ago - first), p50_s=0.5)
    execute(database, "DELETE FROM figures WHERE step = 600")
    coarse = "SELECT calls_s FROM figures WHERE step = 600 AND subject = :its ORDER BY at"
    for _ in range(2):  # the second time nothing is due
        transact(database, history.add_minute, {})
        assert scalars(database, coarse, {"its": MODEL}) == pytest.approx([12.0, 2.0])


def test_a_long_time_is_read_from_the_rows_of_ten_minutes(database: Engine) -> None:
    old(database, (1.9, 60), (6, 600), (29, 600))
    week, month = 7 * 86_400, 30 * 86_400
    rows = transact(database, history.read, MODEL, week, 3600)
    assert [row.figures.calls_s for row in rows] == [6.0]
    assert len(transact(database, history.read, MODEL, month, 14_400)) == 2


def test_rows_go_when_they_are_old(database: Engine) -> None:
    old(database, (1.9, 60), (2.1, 60), (29, 600), (31, 600))
    assert transact(database, history.delete_old) == 2
    assert transact(database, history.delete_old) == 0
    assert count(database, "figures") == 2


@pytest.mark.parametrize("role", [db.API, db.WORKER])
def test_each_role_may_do_its_part_alone(database: Engine, database_url: str, role: str) -> None:
    engine = db.connect(database_url, pool_size=1, role=role)
    with engine.begin() as tx:
        assert history.read(tx, MODEL, 1800, 60) == []
        may = "SELECT has_table_privilege('figures', :right)"
        held = {
            right: tx.scalar(text(may), {"right": right})
            for right in ("INSERT", "UPDATE", "DELETE")
        }
    engine.dispose()
    writes = role == db.WORKER
    assert held == {"INSERT": writes, "UPDATE": False, "DELETE": writes}
