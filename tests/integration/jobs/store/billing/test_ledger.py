"""What is billed: what was recorded, once; and what a month comes to."""

from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.exc import DBAPIError

from jobs import clock
from jobs.errors import SpendCap
from jobs.models.builtin_models import SAMPLES
from jobs.models.inputs.generation import TokenUsage
from jobs.models.pricing import Price
from jobs.states import Outcome
from jobs.store import db
from jobs.store.billing import arrivals, ledger, spend, usage
from jobs.store.billing.ledger import Minute
from jobs.store.jobs import verbs
from jobs.store.queue import settle as settling
from jobs.store.queue.claim import Lease
from jobs.store.queue.settle import Result
from jobs.store.scaling import arrivals as pool_arrivals
from jobs.store.tenancy import EVERYBODY, acting
from jobs.store.tenants import tenants
from jobs.usecases.submit import Order, submit
from ops.simulation import history
from tests.support.command_line import run_millrace
from tests.support.stores.soundness import broken_invariants
from tests.support.stores.store import ECHO, claim, count, post, results
from tests.support.stores.transactions import connected, execute, scalar, transact

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


def rows(leases: Sequence[Lease], outcome: Outcome = "succeeded", **more: Any) -> list[Result]:
    its = {"units": 3, "outcome": outcome, "attempts": 1, "device_us": 100, **more}
    return [row for lease in leases for row in results(lease, **its)]


def settle(database: Engine, leases: Sequence[Lease], found: Sequence[Result]) -> int:
    """Bills a part of a job, and checks that the books are right."""
    settled = transact(database, settling.settle, leases, found, prices=PRICES)
    assert broken_invariants(database) == set()
    return settled


def posted(database: Engine, items: int) -> tuple[UUID, list[Lease]]:
    job = post(database, *["x"] * items)
    return job, claim(database)


def retried(database: Engine, job: UUID) -> list[Lease]:
    transact(database, verbs.retry, job)
    return claim(database)


def billed(database: Engine) -> list[dict[str, Any]]:
    query = text("SELECT * FROM usage ORDER BY at, job_id, start")
    with database.connect() as tx:
        return [dict(row) for row in tx.execute(query).mappings()]


def spent(database: Engine, tenant: str = "default") -> Decimal:
    query = "SELECT coalesce(sum(amount), 0) FROM spend WHERE tenant_id = :tenant"
    found: Decimal = scalar(database, query, {"tenant": tenant})
    return found


def minute(tenant: str = "acme", at: datetime = MINUTE, **counts: int) -> Minute:
    usual = {"succeeded": 10, "failed": 1, "units": 30, "device_us": 1000}
    return Minute(at, tenant, "echo", "1", "standard", **{**usual, **counts})


def bill(database: Engine, *minutes: Minute) -> None:
    transact(database, ledger.bill_calls, minutes, PRICES[ECHO.key])


def test_a_slice_is_billed_with_its_results_to_the_last_digit(database: Engine) -> None:
    job, leases = posted(database, 5)
    settle(database, leases, rows(leases))
    [row] = billed(database)
    expected = {
        "tenant_id": "default", "kind": "items", "job_id": job, "start": 0,
        "model": "echo", "version": "1", "class": "standard",
        "succeeded": 5, "failed": 0, "units": 15, "device_us": 500,
        "amount": Decimal("0.53025"),  # 5 * 0.1 + 15 * 0.002 + 500 * 0.0000005
    }  # fmt: skip
    assert {name: row[name] for name in expected} == expected
    assert spent(database) == row["amount"]


def test_slices_of_many_jobs_and_classes_are_told_apart(database: Engine) -> None:
    post(database, *["x"] * 2500)
    post(database, "x", "x", job_class="interactive")
    for _ in range(20):
        post(database, "x")
    leases = [lease for _ in range(2) for lease in claim(database, room=10_000)]
    assert settle(database, leases, rows(leases)) == len(leases) == 24
    found = billed(database)
    assert {(row["job_id"], row["start"]): row["succeeded"] for row in found} == {
        (lease.job_id, lease.start): lease.stop - lease.start for lease in leases
    }
    [quick] = [row for row in found if row["class"] == "interactive"]
    assert quick["amount"] == 3 * Decimal("0.2121")


def test_tokens_are_billed_with_their_results_to_the_last_digit(database: Engine) -> None:
    _, leases = posted(database, 3)
    first, second, third = rows(leases)
    first.tokens, second.tokens = TokenUsage(100, 40, 7), TokenUsage(20, 0, 3)
    first.outcome = "failed"
    settle(database, leases, [first, second, third])
    [row] = billed(database)
    assert (row["input_tokens"], row["cached_tokens"], row["output_tokens"]) == (120, 40, 10)
    # 2 * 0.1 + 6 * 0.002 + 300 * 0.0000005 + 80 * 0.004 + 40 * 0.001 + 10 * 0.008
    assert row["amount"] == spent(database) == Decimal("0.65215")


def test_a_result_that_is_offered_twice_is_billed_once_with_its_tokens(database: Engine) -> None:
    job, leases = posted(database, 4)
    tokens = TokenUsage(10, 5, 1)
    settle(database, leases, rows(leases, tokens=tokens)[:3])  # the fourth goes back
    again = claim(database)
    settle(database, again, rows(again, tokens=tokens) * 2)
    found = [(row["job_id"], row["succeeded"], row["output_tokens"]) for row in billed(database)]
    assert found == [(job, 3, 3), (job, 1, 1)]


def test_long_outputs_are_written_by_several_statements_and_billed_once(database: Engine) -> None:
    job, leases = posted(database, 4)
    long = rows(leases)
    for number, result in enumerate(long):
        text_of = f'"{str(number) * 600_000}"'
        result.output = text_of if number % 2 else b"f" + text_of.encode()  # as a vector is stored
    settle(database, leases, long * 2)
    found = billed(database)
    assert [row["succeeded"] for row in found] == [1] * 4, "a statement each"
    assert sum(row["amount"] for row in found) == spent(database) == 4 * Decimal("0.10605")
    stored = "SELECT sum(coalesce(length(output), length(vector) - 1)) FROM results"
    assert scalar(database, stored) == 4 * 600_002
    assert count(database, "results", job) == 4


def test_a_retry_bills_what_newly_succeeds_and_keeps_what_failures_used(database: Engine) -> None:
    job, leases = posted(database, 3)
    tokens = TokenUsage(10, 5, 1)
    good, bad = rows(leases, tokens=tokens)[:2], rows(leases, "failed", tokens=tokens)[2:]
    settle(database, leases, good + bad)
    again = retried(database, job)
    settle(database, again, rows(again))
    found = billed(database)
    assert [(row["succeeded"], row["output_tokens"]) for row in found] == [(2, 3), (1, 0)]
    assert sum(row["device_us"] for row in found) == 400


def test_tokens_of_calls_are_billed_by_the_minute(database: Engine) -> None:
    tokens = {"input_tokens": 100, "cached_tokens": 40, "output_tokens": 7}
    bill(database, minute(**tokens))
    [row] = billed(database)
    assert {name: row[name] for name in tokens} == tokens
    assert row["amount"] == Decimal("1.3965")  # 1.0605 + 60 * 0.004 + 40 * 0.001 + 7 * 0.008
    [found] = transact(database, usage.sums, "acme", [], date(2026, 11, 1), date(2026, 12, 1))
    assert (found.input_tokens, found.cached_tokens, found.output_tokens) == (100, 40, 7)


def test_failures_cost_their_time_on_the_device_alone(database: Engine) -> None:
    _, leases = posted(database, 2)
    settle(database, leases, rows(leases)[:1] + rows(leases, "failed")[1:])
    [row] = billed(database)
    assert (row["succeeded"], row["failed"], row["units"], row["device_us"]) == (1, 1, 3, 200)
    assert row["amount"] == Decimal("0.1061")


def test_a_stale_owner_or_a_transaction_that_fails_bills_nothing(database: Engine) -> None:
    _, stale = posted(database, 1)
    execute(database, "UPDATE slices SET state = 'ready', lease_owner = NULL, lease_until = NULL")
    fresh = claim(database)
    assert settle(database, stale, rows(stale)) == 0
    assert billed(database) == []
    with database.connect() as tx:
        assert settling.settle(tx, fresh, rows(fresh), prices=PRICES) == 1
        tx.rollback()
    assert (billed(database), spent(database)) == ([], 0)
    assert settle(database, fresh, rows(fresh)) == 1
    assert len(billed(database)) == 1


def test_what_a_cancel_fills_in_costs_nothing(database: Engine) -> None:
    job, leases = posted(database, 3)
    transact(database, verbs.cancel, job)
    settle(database, leases, rows(leases)[:1])
    assert [row["succeeded"] for row in billed(database)] == [1]


def test_without_a_price_what_was_used_is_written_and_nothing_spent(database: Engine) -> None:
    _, leases = posted(database, 1)
    transact(database, settling.settle, leases, rows(leases))
    [row] = billed(database)
    assert (row["units"], row["amount"], count(database, "spend")) == (3, 0, 0)


@pytest.mark.parametrize("change", ["UPDATE usage SET amount = 0", "DELETE FROM usage"])
@pytest.mark.parametrize("role", ["", db.WORKER, db.API])
def test_the_ledger_is_frozen(database: Engine, database_url: str, change: str, role: str) -> None:
    bill(database, minute())
    refused = pytest.raises(DBAPIError, match=r"insert-only|permission denied")
    with connected(database_url, role) as engine, refused:
        execute(engine, change)
    assert len(billed(database)) == 1


def test_a_tenant_sees_its_own_rows_alone(database: Engine, api: Engine) -> None:
    bill(database, minute("acme"), minute("other"))
    for table in ("usage", "spend"):
        with acting(api, "acme") as tx:
            seen = tx.scalars(text(f"SELECT tenant_id FROM {table}")).all()
        assert seen == ["acme"]
    with pytest.raises(DBAPIError, match=r"permission denied"), acting(api, "acme") as tx:
        tx.execute(text("INSERT INTO spend VALUES ('acme', now(), -1)"))


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


def this_minute(**counts: int) -> Minute:
    return minute(at=clock.now().replace(second=0, microsecond=0), **counts)


def test_at_the_hard_cap_nothing_new_is_taken_in(database: Engine) -> None:
    transact(database, tenants.change, "acme", hard_cap=1.0605)

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
    transact(database, tenants.change, "acme", hard_cap=None)
    order()


def told(database: Engine) -> list[tuple[str, int]]:
    with database.begin() as tx:
        spend.notify(tx)
        query = "SELECT type, about FROM webhook_deliveries ORDER BY created_at"
        return [(type, about["percent"]) for type, about in tx.execute(text(query))]


def test_each_share_of_the_soft_cap_is_told_once_a_month(database: Engine) -> None:
    transact(database, tenants.change, "acme", soft_cap=10)
    transact(database, spend.set_endpoint, "acme", "https://acme.example/usage")
    at = this_minute().at
    for second, (succeeded, shares) in enumerate([(79, []), (1, [80]), (20, [80, 100])]):
        found = minute(at=at.replace(second=second), succeeded=succeeded, units=0, device_us=0)
        bill(database, found)
        assert told(database) == told(database) == [("usage.threshold", one) for one in shares]


def test_who_passes_both_shares_at_once_is_told_of_the_higher(database: Engine) -> None:
    transact(database, tenants.change, "acme", soft_cap=1)
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


# -- arrivals of calls and items, as `millrace history export` writes them

AT_S = int(MINUTE.timestamp())
DAY = timedelta(days=1)


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
    leases = claim(database)
    settle(database, leases, rows(leases, units=1))
    post(database, *["b"] * 30)
    now = clock.now()
    found = transact(database, arrivals.items, now - DAY, now + DAY)
    assert sum(its.count for its in found) == 40
    assert {(its.model, its.version) for its in found} == {("echo", "1")}
    assert sum(its.units for its in found) == pytest.approx(40)


def test_a_history_is_exported(database: Engine, database_url: str, tmp_path: Path) -> None:
    def export(since: str, until: str, status: int = 0) -> str:
        words = ["history", "export", str(path), "--from", since, "--to", until]
        return run_millrace(*words, status=status, MILLRACE_DATABASE_URL=database_url).output

    bill(database, Minute(MINUTE, "alice", "echo", "1", "standard", 5, 1, 50, 2_000_000))
    with database.begin() as tx:
        pool_arrivals.add(tx, "gpu", AT_S, 2.0)
        pool_arrivals.add(tx, "gpu", AT_S, 3.0)
    path = tmp_path / "arrivals.csv"
    said = export("2026-11-21", "2026-11-22")
    assert "2 rows from 2026-11-21 00:00 to 2026-11-22 00:00 UTC" in said
    call, work = history.read(path)
    assert call == history.Row(AT_S, 60, "calls", "echo@1", 6, 50, 2.0)
    assert (work.kind, work.name, work.count, work.lasts_s) == ("work", "gpu", 2.5, 300)
    assert "--from must be before --to" in export("2026-11-22", "2026-11-21", status=2)
    assert ECHO.key == "echo@1"
