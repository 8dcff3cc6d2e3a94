"""Whose slices are claimed next where a model has more tenants than a claim looks for."""

import itertools
from collections import Counter
from dataclasses import replace
from functools import partial

import pytest
from sqlalchemy import Engine, text

from jobs.models.model import Limits, Model
from jobs.store.queue import claim as claims
from jobs.store.queue.claim import Lease, PreemptiveClaim
from jobs.store.queue.present import MOST_PRESENT
from tests.support.stores import plans
from tests.support.stores.transactions import execute, scalar, transact

ECHO = Model("echo", "1", "echo", limits=Limits(slice_items=10))
OTHER = replace(ECHO, name="other")
MANY = MOST_PRESENT + 50

_FILL = text("""
    WITH job AS (
        INSERT INTO jobs (id, tenant_id, model, version, class, priority, state, params, metadata,
                          custom_ids, total)
        SELECT CAST(:prefix || lpad(to_hex(CAST(:first AS int) + n), 12, '0') AS uuid),
               :tenant || n % CAST(:tenants AS int), :model, '1', 'standard', 0, 'queued', '{}',
               '{}', false, 1
        FROM generate_series(0, CAST(:jobs AS int) - 1) n
        RETURNING *
    )
    INSERT INTO slices (job_id, start, stop, tenant_id, model, version, priority)
    SELECT id, 0, 1, tenant_id, model, version, 0 FROM job
""")
_IDS = "01900000-0000-7000-8000-"
_numbers = itertools.count()


def fill(database: Engine, tenant: str, jobs: int, tenants: int, model: str = "echo") -> None:
    """Queues jobs of one item, spread over tenants; later ones have later ids."""
    values = {"prefix": _IDS, "tenant": tenant, "tenants": tenants, "jobs": jobs, "model": model}
    with database.begin() as tx:
        tx.execute(_FILL, values | {"first": 100_000 * next(_numbers)})


def claim(database: Engine, room: int, preemptive: PreemptiveClaim | None = None) -> list[Lease]:
    return transact(database, claims.claim, 1, {ECHO: room, OTHER: room}, 60, preemptive=preemptive)


def claim_all(database: Engine, room: int) -> list[Lease]:
    leases: list[Lease] = []
    while found := claim(database, room):
        leases += found
    return leases


def test_each_is_served_once_before_any_is_again(database: Engine) -> None:
    fill(database, "t", 2 * MANY, MANY)
    tenants = [lease.tenant for lease in claim_all(database, 40)]
    assert set(Counter(tenants).values()) == {2}
    # The claim that finds out that they are too many chooses among the first.
    assert len(set(tenants[:MANY])) >= MANY - 40


def test_weights_are_shares_among_many(database: Engine) -> None:
    fill(database, "t", 4 * MANY, MANY)
    fill(database, "heavy", 1000, 1)
    execute(database, "INSERT INTO tenants (tenant_id, weight) VALUES ('heavy0', 100)")
    got = Counter(lease.tenant for _ in range(20) for lease in claim(database, 60))
    assert got["heavy0"] / got.total() == pytest.approx(100 / (100 + MANY), rel=0.15)


@pytest.mark.parametrize("preemptive", [False, True])
def test_who_comes_is_served_next_though_no_list_has_it(database: Engine, preemptive: bool) -> None:
    """Also by a preemptive claim, beside leases of a tenant that was served more than any."""
    fill(database, "t", 3 * MANY, MANY)
    leases = [lease for _ in range(2 if preemptive else 3) for lease in claim(database, MANY)]
    fill(database, "zz-new", 1, 1)
    if preemptive:
        most = scalar(database, "SELECT tenant_id FROM turns ORDER BY time_ms DESC LIMIT 1")
        held = [lease for lease in leases if lease.tenant == most]
        assert [one.tenant for one in claim(database, 1, PreemptiveClaim(held))] == ["zz-new0"]
    else:
        assert "zz-new0" in {lease.tenant for lease in claim(database, 20)}


def test_few_and_the_other_model_have_no_list(database: Engine) -> None:
    lists = "SELECT count(*) FROM next_tenants"
    fill(database, "t", MANY, MANY)
    fill(database, "t", 3, 3, "other")
    leases = claim(database, 10)
    assert scalar(database, lists) == 1
    leases += claim_all(database, 100)
    assert Counter(lease.model for lease in leases) == {"echo@1": MANY, "other@1": 3}
    assert scalar(database, lists) == 0


def test_a_claim_reads_as_much_of_ten_thousand_as_of_two(database: Engine) -> None:
    read = []
    for tenants in (2000, 10_000):
        fill(database, f"of-{tenants}-", tenants, tenants)
        with database.connect() as tx:
            tx.exec_driver_sql("ANALYZE jobs, slices")
            ten = partial(claims.claim, tx, 1, {ECHO: 10}, 60)
            assert len(ten()) == 10  # makes the list
            read.append(plans.blocks(plans.explained(tx, ten)))
            tx.rollback()
    assert read[1] < 1.3 * read[0]
