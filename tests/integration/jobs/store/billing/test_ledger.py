"""What is billed: what was recorded, once; and what a month comes to."""

from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.exc import DBAPIError

from jobs import clock
from jobs.errors import SpendCap
from jobs.models.builtin_models import SAMPLES
from jobs.models.inputs.generation import TokenUsage
from jobs.models.pricing import Price
from jobs.store import db
from jobs.store.billing import ledger, spend, usage
from jobs.store.billing.ledger import Minute
from jobs.store.jobs import verbs
from jobs.store.queue import settle as settling
from jobs.store.queue.claim import Lease
from jobs.store.queue.settle import Result
from jobs.store.tenancy import EVERYBODY, acting
from jobs.store.tenants import tenants
from jobs.usecases.submit import Order, submit
from tests.support.stores.soundness import broken_invariants
from tests.support.stores.store import ECHO, claim, post
from tests.support.stores.transactions import execute, scalar, transact

PRICES = {
    ECHO.key: Price(
        Decimal("0.1"),
        Decimal(2),
        Decimal("0.5"),
        per_1k_input_tokens=Decimal(4),
        per_1k_cached_tokens=Decimal(1),
        per_1k_output_tokens=Decimal(8),
        classes={"interactive": Decimal(3)},
    )
}
MINUTE = datetime(2026, 11, 21, 12, 30, tzinfo=UTC)


def rows(leases: Sequence[Lease], outcome: Any = "succeeded") -> list[Result]:
    return [
        Result(lease.job_id, lease.tenant, seq, outcome, 3, None, None, None, None, 1, 100)
        for lease in leases
        for seq in range(lease.start, lease.stop)
    ]


def settle(database: Engine, leases: Sequence[Lease], results: Sequence[Result]) -> int:
    return transact(database, settling.settle, leases, results, prices=PRICES)


def billed(database: Engine) -> list[dict[str, Any]]:
    with database.connect() as tx:
        found = tx.execute(text("SELECT * FROM usage ORDER BY at, job_id, start")).mappings()
        return [dict(row) for row in found]


def spent(database: Engine, tenant: str = "default") -> Decimal:
    with database.connect() as tx:
        query = text("SELECT coalesce(sum(amount), 0) FROM spend WHERE tenant_id = :tenant")
        found: Decimal = tx.scalars(query, {"tenant": tenant}).one()
    return found


def minute(tenant: str = "acme", at: datetime = MINUTE, **counts: int) -> Minute:
    usual = {"succeeded": 10, "failed": 1, "units": 30, "device_us": 1000}
    return Minute(at, tenant, "echo", "1", "standard", **{**usual, **counts})


def bill(database: Engine, *minutes: Minute) -> None:
    transact(database, ledger.bill_calls, minutes, PRICES[ECHO.key])


def test_a_slice_is_billed_with_its_results_to_the_last_digit(database: Engine) -> None:
    job = post(database, *["x"] * 5)
    leases = claim(database)
    settle(database, leases, rows(leases))
    [row] = billed(database)
    assert (row["tenant_id"], row["kind"], row["job_id"], row["start"]) == (
        "default", "items", job, 0,
    )  # fmt: skip
    assert (row["model"], row["version"], row["class"]) == ("echo", "1", "standard")
    assert (row["succeeded"], row["failed"], row["units"], row["device_us"]) == (5, 0, 15, 500)
    assert row["amount"] == Decimal("0.53025")  # 5 * 0.1 + 15 * 0.002 + 500 * 0.0000005
    assert spent(database) == row["amount"]
    assert broken_invariants(database) == set()


def test_slices_of_many_jobs_and_classes_are_told_apart(database: Engine) -> None:
    post(database, *["x"] * 2500)
    post(database, "x", "x", job_class="interactive")
    for _ in range(20):
        post(database, "x")
    leases = claim(database, room=10_000)
    assert settle(database, leases, rows(leases)) == len(leases) == 24
    found = billed(database)
    assert {(row["job_id"], row["start"]): row["succeeded"] for row in found} == {
        (lease.job_id, lease.start): lease.stop - lease.start for lease in leases
    }
    [quick] = [row for row in found if row["class"] == "interactive"]
    assert quick["amount"] == 3 * Decimal("0.2121")
    assert broken_invariants(database) == set()


def test_tokens_are_billed_with_their_results_to_the_last_digit(database: Engine) -> None:
    post(database, "x", "x", "x")
    leases = claim(database)
    first, second, third = rows(leases)
    first.tokens, second.tokens = TokenUsage(100, 40, 7), TokenUsage(20, 0, 3)
    first.outcome = "failed"
    settle(database, leases, [first, second, third])
    [row] = billed(database)
    assert (row["input_tokens"], row["cached_tokens"], row["output_tokens"]) == (120, 40, 10)
    # 2 * 0.1 + 6 * 0.002 + 300 * 0.0000005 + 80 * 0.004 + 40 * 0.001 + 10 * 0.008
    assert row["amount"] == Decimal("0.65215")
    assert spent(database) == row["amount"]
    assert broken_invariants(database) == set()


def test_a_result_that_is_offered_twice_bills_its_tokens_once(database: Engine) -> None:
    post(database, *["x"] * 4)
    for _ in range(2):
        leases = claim(database)
        found = rows(leases)[:3] if not billed(database) else rows(leases)
        for one in found:
            one.tokens = TokenUsage(10, 5, 1)
        settle(database, leases, found)
    assert [row["output_tokens"] for row in billed(database)] == [3, 1]
    assert broken_invariants(database) == set()


def test_tokens_of_an_archived_failure_stay_in_the_ledger(database: Engine) -> None:
    job = post(database, "x", "x")
    leases = claim(database)
    found = rows(leases)[:1] + rows(leases, "failed")[1:]
    for one in found:
        one.tokens = TokenUsage(10, 5, 1)
    settle(database, leases, found)
    transact(database, verbs.retry, job)
    again = claim(database)
    settle(database, again, rows(again))
    assert [row["output_tokens"] for row in billed(database)] == [2, 0]
    assert broken_invariants(database) == set()


def test_tokens_of_calls_are_billed_by_the_minute(database: Engine) -> None:
    tokens = {"input_tokens": 100, "cached_tokens": 40, "output_tokens": 7}
    bill(database, minute(**tokens))
    [row] = billed(database)
    assert {name: row[name] for name in tokens} == tokens
    assert row["amount"] == Decimal("1.3965")  # 1.0605 + 60 * 0.004 + 40 * 0.001 + 7 * 0.008
    [found] = transact(database, usage.sums, "acme", [], date(2026, 11, 1), date(2026, 12, 1))
    assert (found.input_tokens, found.cached_tokens, found.output_tokens) == (100, 40, 7)


def test_failures_cost_their_time_on_the_device_alone(database: Engine) -> None:
    post(database, "x", "x")
    leases = claim(database)
    good, bad = rows(leases)[:1], rows(leases, "failed")[1:]
    settle(database, leases, good + bad)
    [row] = billed(database)
    assert (row["succeeded"], row["failed"], row["units"], row["device_us"]) == (1, 1, 3, 200)
    assert row["amount"] == Decimal("0.1061")


def test_what_is_recorded_already_is_not_billed_again(database: Engine) -> None:
    job = post(database, *["x"] * 4)
    leases = claim(database)
    settle(database, leases, rows(leases)[:3])  # the fourth goes back
    again = claim(database)
    settle(database, again, rows(again) * 2)
    found = billed(database)
    assert [(row["job_id"], row["succeeded"]) for row in found] == [(job, 3), (job, 1)]
    assert broken_invariants(database) == set()


def test_a_stale_owner_bills_nothing(database: Engine) -> None:
    post(database, "x")
    stale = claim(database)
    execute(database, "UPDATE slices SET state = 'ready', lease_owner = NULL, lease_until = NULL")
    fresh = claim(database)
    assert settle(database, stale, rows(stale)) == 0
    assert billed(database) == []
    assert settle(database, fresh, rows(fresh)) == 1
    assert len(billed(database)) == 1


def test_a_transaction_that_fails_bills_nothing(database: Engine) -> None:
    post(database, "x")
    leases = claim(database)
    with database.connect() as tx:
        settling.settle(tx, leases, rows(leases), prices=PRICES)
        tx.rollback()
    assert (billed(database), spent(database)) == ([], 0)


def test_a_retried_generation_bills_what_newly_succeeds(database: Engine) -> None:
    job = post(database, "x", "x", "x")
    leases = claim(database)
    settle(database, leases, rows(leases)[:2] + rows(leases, "failed")[2:])
    transact(database, verbs.retry, job)
    again = claim(database)
    settle(database, again, rows(again))
    assert [row["succeeded"] for row in billed(database)] == [2, 1]
    assert sum(row["device_us"] for row in billed(database)) == 400
    assert broken_invariants(database) == set()


def test_what_a_cancel_fills_in_costs_nothing(database: Engine) -> None:
    job = post(database, *["x"] * 3)
    leases = claim(database)
    transact(database, verbs.cancel, job)
    settle(database, leases, rows(leases)[:1])
    assert [row["succeeded"] for row in billed(database)] == [1]
    assert broken_invariants(database) == set()


def test_without_a_price_what_was_used_is_written_and_nothing_spent(database: Engine) -> None:
    post(database, "x")
    leases = claim(database)
    transact(database, settling.settle, leases, rows(leases))
    [row] = billed(database)
    assert (row["units"], row["amount"]) == (3, 0)
    assert scalar(database, "SELECT count(*) FROM spend") == 0


@pytest.mark.parametrize("change", ["UPDATE usage SET amount = 0", "DELETE FROM usage"])
@pytest.mark.parametrize("role", ["", db.WORKER, db.API])
def test_the_ledger_is_frozen(database: Engine, database_url: str, change: str, role: str) -> None:
    bill(database, minute())
    engine = db.connect(database_url, pool_size=1, role=role)
    with pytest.raises(DBAPIError, match=r"insert-only|permission denied"), engine.begin() as tx:
        tx.execute(text(change))
    engine.dispose()
    assert len(billed(database)) == 1


def test_a_tenant_sees_its_own_rows_alone(database: Engine, database_url: str) -> None:
    bill(database, minute("acme"), minute("other"))
    engine = db.connect(database_url, pool_size=1, role=db.API)
    for table in ("usage", "spend"):
        with acting(engine, "acme") as tx:
            seen = tx.scalars(text(f"SELECT tenant_id FROM {table}")).all()
        assert seen == ["acme"]
    with pytest.raises(DBAPIError, match=r"permission denied"), acting(engine, "acme") as tx:
        tx.execute(text("INSERT INTO spend VALUES ('acme', now(), -1)"))
    engine.dispose()


def test_a_minute_of_calls_is_billed_once_however_often_it_is_moved(database: Engine) -> None:
    bill(database, minute(), minute("other"))
    bill(database, minute(succeeded=11), minute(at=MINUTE + timedelta(minutes=1)))
    assert [(row["at"], row["tenant_id"], row["succeeded"]) for row in billed(database)] == [
        (MINUTE, "acme", 10),
        (MINUTE, "other", 10),
        (MINUTE + timedelta(minutes=1), "acme", 10),
    ]
    assert spent(database, "acme") == 2 * Decimal("1.0605")
    assert broken_invariants(database) == set()


def test_spend_is_summed_up_without_losing_any(database: Engine) -> None:
    december = datetime(2026, 12, 1, tzinfo=UTC)
    for n in range(7):
        bill(database, minute(at=MINUTE + timedelta(minutes=n)), minute("other"))
    bill(database, minute(at=december))
    with database.begin() as one, database.begin() as two:
        assert spend.compact(one, most=3) == 1
        assert spend.compact(two, most=3) == 0  # it passes by what the other one has
    with database.begin() as tx:
        assert spend.compact(tx, most=3) == 0
        found = tx.execute(text("SELECT * FROM spend ORDER BY tenant_id, month")).all()
    assert [tuple(row) for row in found] == [
        ("acme", date(2026, 11, 1), 7 * Decimal("1.0605")),
        ("acme", date(2026, 12, 1), Decimal("1.0605")),
        ("other", date(2026, 11, 1), Decimal("1.0605")),
    ]
    assert broken_invariants(database) == set()


def put(database: Engine, **caps: float | None) -> None:
    transact(database, tenants.change, "acme", **caps)


def this_minute(**counts: int) -> Minute:
    return minute(at=clock.now().replace(second=0, microsecond=0), **counts)


def test_at_the_hard_cap_nothing_new_is_taken_in(database: Engine) -> None:
    put(database, hard_cap=1.0605)

    def order() -> None:
        submit(database, SAMPLES, "acme", Order("echo"), array=["x"])

    bill(database, minute(at=clock.now().replace(day=1) - timedelta(days=1)))  # another month
    order()
    assert not transact(database, tenants.terms, "acme").spent
    bill(database, this_minute())
    with pytest.raises(SpendCap) as refused:
        order()
    assert refused.value.retry_after_s is not None
    until = clock.now() + timedelta(seconds=refused.value.retry_after_s)
    assert (until + timedelta(seconds=1)).day == 1
    with database.begin() as tx:
        assert tenants.terms(tx, "acme").spent
        assert not tenants.terms(tx, "other").spent
    put(database, hard_cap=None)
    order()


def told(database: Engine) -> list[tuple[str, int]]:
    with database.begin() as tx:
        spend.notify(tx)
        query = "SELECT type, about FROM webhook_deliveries ORDER BY created_at"
        return [(type, about["percent"]) for type, about in tx.execute(text(query))]


def test_each_share_of_the_soft_cap_is_told_once_a_month(database: Engine) -> None:
    put(database, soft_cap=10)
    transact(database, spend.set_endpoint, "acme", "https://acme.example/usage")
    at = this_minute().at
    bill(database, minute(at=at, succeeded=79, units=0, device_us=0))
    assert told(database) == []
    bill(database, minute(at=at.replace(second=1), succeeded=1, units=0, device_us=0))
    assert told(database) == told(database) == [("usage.threshold", 80)]
    bill(database, minute(at=at.replace(second=2), succeeded=20, units=0, device_us=0))
    assert told(database) == told(database) == [("usage.threshold", 80), ("usage.threshold", 100)]


def test_who_passes_both_shares_at_once_is_told_of_the_higher(database: Engine) -> None:
    put(database, soft_cap=1)
    bill(database, this_minute())
    assert told(database) == []  # there is no endpoint yet
    transact(database, spend.set_endpoint, "acme", "https://acme.example/usage")
    assert told(database) == told(database) == [("usage.threshold", 100)]


def test_sums_go_by_whatever_is_asked(database: Engine) -> None:
    bill(database, minute(), minute(at=MINUTE + timedelta(days=1)), minute("other"))
    with database.connect() as tx:

        def sums(tenant: str, by: Sequence[usage.By], since: str, until: str) -> list[Any]:
            dates = date.fromisoformat(since), date.fromisoformat(until)
            rows = usage.sums(tx, tenant, by, *dates)
            return [(*row.group, row.succeeded) for row in rows]

        november = "2026-11-01", "2026-12-01"
        assert sums("acme", [], *november) == [(20,)]
        assert sums("acme", ["day"], *november) == [("2026-11-21", 10), ("2026-11-22", 10)]
        assert sums("acme", ["month", "kind"], *november) == [("2026-11", "calls", 20)]
        assert sums("acme", ["day"], "2026-11-21", "2026-11-22") == [("2026-11-21", 10)]
        assert sums(EVERYBODY, ["tenant"], *november) == [("acme", 20), ("other", 10)]
        assert sums("nobody", ["model", "version", "class"], *november) == []
