"""Whose slices are claimed next."""

from collections import Counter
from dataclasses import replace
from uuid import UUID

import pytest
from sqlalchemy import Engine

from jobs.models.builtin_models import SAMPLES
from jobs.models.model import Limits, Model
from jobs.models.registry import Registry
from jobs.store.queue import claim as claims
from jobs.store.queue import fair_share
from jobs.store.queue import settle as settling
from jobs.store.queue.claim import Lease, PreemptiveClaim
from jobs.store.queue.settle import Attempt
from jobs.usecases.submit import Order, submit
from tests.support.stores.store import results
from tests.support.stores.transactions import execute, scalar, transact

SLICE = 10
ECHO = Model("echo", "1", "echo", limits=Limits(slice_items=SLICE))
OTHER = replace(ECHO, name="other")
MODELS = Registry([ECHO, OTHER])
ITEM_US = 1000


def post(database: Engine, tenant: str, items: int, model: str = "echo", **order: object) -> UUID:
    asked = Order(model, **order)  # type: ignore[arg-type]
    id: UUID = submit(database, MODELS, tenant, asked, array=["x"] * items).id
    return id


def weigh(database: Engine, **weights: float) -> None:
    for tenant, weight in weights.items():
        row = {"tenant": tenant, "weight": weight}
        execute(database, "INSERT INTO tenants (tenant_id, weight) VALUES (:tenant, :weight)", row)


def claim(
    database: Engine, room: int = SLICE, preemptive: PreemptiveClaim | None = None
) -> list[Lease]:
    return transact(database, claims.claim, 1, {ECHO: room, OTHER: room}, 60, preemptive=preemptive)


def settle(database: Engine, leases: list[Lease], item_us: int = ITEM_US) -> None:
    rows = [row for lease in leases for row in results(lease, device_us=item_us)]
    transact(database, settling.settle, leases, rows)


def served(database: Engine, rounds: int, room: int = SLICE, **item_us: int) -> Counter[str]:
    """Device time that each tenant got, µs, over so many claims."""
    got: Counter[str] = Counter()
    for _ in range(rounds):
        leases = claim(database, room)
        for lease in leases:
            us = item_us.get(lease.tenant, ITEM_US)
            settle(database, [lease], us)
            got[lease.tenant] += us * (lease.stop - lease.start)
    return got


@pytest.mark.parametrize(
    "posted",
    [
        [("flood", 2000, "echo"), ("a", 300, "echo"), ("b", 300, "echo")],
        [("a", 1000, "echo"), ("b", 1000, "other"), ("c", 1000, "other")],
    ],
    ids=["of one model", "over the models of a pool"],
)
def test_waiting_tenants_get_the_same(database: Engine, posted: list[tuple[str, int, str]]) -> None:
    for its in posted:
        post(database, *its)
    got = served(database, 60)
    assert max(got.values()) - min(got.values()) <= SLICE * ITEM_US


def test_weights_are_shares(database: Engine) -> None:
    weigh(database, one=1, two=2, four=4)
    for tenant in ("one", "two", "four"):
        post(database, tenant, 1500)
    got = served(database, 140)
    for tenant, share in (("one", 1 / 7), ("two", 2 / 7), ("four", 4 / 7)):
        assert got[tenant] / got.total() == pytest.approx(share, rel=0.05)


def test_shares_are_of_device_time_as_it_turned_out(database: Engine) -> None:
    for tenant in ("cheap", "dear"):
        post(database, tenant, 3000)
    got = served(database, 200, dear=4 * ITEM_US)
    assert got["cheap"] / got["dear"] == pytest.approx(1, rel=0.05)


def test_a_list_counts_as_its_inputs(database: Engine) -> None:
    """In room and in turns: of two tenants with as many items the one with lists gets as much."""
    embeds = Model("m", "1", "minilm", limits=Limits(slice_items=SLICE))
    models = Registry([embeds])

    def claimed(room: int) -> list[Lease]:
        return transact(database, claims.claim, 1, {embeds: room}, 60)

    for tenant, item in (("lists", ["x"] * 5), ("texts", "x")):
        submit(database, models, tenant, Order("m"), array=[item] * 40)
    first = claimed(2 * SLICE)
    assert [(lease.tenant, lease.stop - lease.start, lease.inputs) for lease in first] == [
        ("lists", 2, 10),
        ("texts", 10, 10),
    ]
    for _ in range(4):
        first += claimed(SLICE)
    inputs = Counter[str]()
    for lease in first:
        inputs[lease.tenant] += lease.inputs
    assert inputs == {"lists": 3 * SLICE, "texts": 3 * SLICE}


def test_who_fails_again_and_again_has_had_its_turn(database: Engine) -> None:
    for tenant in ("fails", "works"):
        post(database, tenant, 1000)
    got: Counter[str] = Counter()
    for _ in range(40):
        [lease] = claim(database)
        if lease.tenant == "works":
            settle(database, [lease])
        else:
            failures = [
                Attempt(lease.job_id, lease.tenant, seq, 1, "{}", None, 0.0, ITEM_US)
                for seq in range(lease.start, lease.stop)
            ]
            transact(database, settling.settle, [lease], [], failures)
        got[lease.tenant] += 1
    assert got["works"] == pytest.approx(got["fails"], abs=2)


def test_a_launch_may_take_hours(database: Engine) -> None:
    post(database, "a", 1)
    settle(database, claim(database), 2 * 3600 * 1_000_000)
    assert scalar(database, "SELECT sum(device_us) FROM usage") == 7_200_000_000
    assert scalar(database, "SELECT state FROM jobs") == "completed"


def test_who_was_idle_has_saved_nothing_up(database: Engine) -> None:
    post(database, "busy", 2000)
    post(database, "idle", SLICE)
    served(database, 100)
    post(database, "idle", 1000)
    got = served(database, 40)
    assert got["idle"] / got["busy"] == pytest.approx(1, rel=0.15)


def test_a_claim_of_many_slices_is_shared(database: Engine) -> None:
    for _ in range(100):
        post(database, "flood", 1)
    for tenant in "abc":
        post(database, tenant, 1)
    leases = claim(database, room=40)
    assert {"a", "b", "c"} < {lease.tenant for lease in leases}
    assert len(leases) == 40


def test_a_short_job_passes_the_rest_of_a_long_one_and_the_long_one_ends(database: Engine) -> None:
    long = post(database, "a", 100 * SLICE)
    settle(database, claim(database))
    short = post(database, "a", 1)
    some_seconds_later = """
        UPDATE slices SET due_at = slices.due_at + (other.due_at - its.first - interval '5 s')
        FROM (SELECT min(due_at) AS first FROM slices WHERE job_id = :long) its, slices other
        WHERE slices.job_id = :long AND other.job_id = :short
    """
    execute(database, some_seconds_later, {"long": long, "short": short})
    order = []
    while leases := claim(database):
        order += [lease.job_id for lease in leases]
        settle(database, leases)
    assert order.index(short) < 10
    assert order.count(long) == 99


@pytest.mark.parametrize(
    ("later", "passes"),
    [
        ({"job_class": "interactive"}, True),
        ({"job_class": "standard"}, False),
        ({"job_class": "bulk"}, False),
        ({"priority": 1, "job_class": "bulk"}, True),
        ({"expires_in_s": 20.0}, True),
    ],
)
def test_within_a_tenant_class_priority_and_deadline_decide(
    database: Engine, later: dict[str, object], passes: bool
) -> None:
    earlier = post(database, "a", 1)
    last = post(database, "a", 1, **later)
    assert [lease.job_id for lease in claim(database, 1)] == [last if passes else earlier]


def test_what_has_waited_long_enough_passes_every_class(database: Engine) -> None:
    old = post(database, "a", 1, job_class="bulk")
    execute(database, "UPDATE slices SET due_at = due_at - interval '11 min'")
    post(database, "a", 1, job_class="interactive")
    assert [lease.job_id for lease in claim(database, 1)] == [old]


def test_guests_are_those_who_are_owed_and_have_nothing_in_hand(database: Engine) -> None:
    post(database, "flood", 1000)
    in_hand = [*claim(database), *claim(database)]
    assert claim(database, preemptive=PreemptiveClaim(in_hand)) == []
    post(database, "new", 1)
    guests = claim(database, preemptive=PreemptiveClaim(in_hand))
    assert [lease.tenant for lease in guests] == ["new"]
    # It has had more than its share now: what it hands in next waits for its turn.
    post(database, "new", 100)
    settle(database, guests, 100 * SLICE * ITEM_US)
    assert claim(database, preemptive=PreemptiveClaim(in_hand)) == []


def test_a_tenants_urgent_job_is_a_guest_beside_its_own_large_one(database: Engine) -> None:
    post(database, "a", 100)
    in_hand = PreemptiveClaim(claim(database))
    post(database, "a", 1)
    assert claim(database, preemptive=in_hand) == []
    urgent = post(database, "a", 1, job_class="interactive")
    assert [lease.job_id for lease in claim(database, preemptive=in_hand)] == [urgent]


def test_more_tenants_than_a_claim_looks_at_are_all_served(database: Engine) -> None:
    for n in range(200):
        post(database, f"t{n}", 1)
    got: set[str] = set()
    while leases := claim(database, room=30):
        got |= {lease.tenant for lease in leases}
        settle(database, leases)
    assert len(got) == 200


def test_tenants_that_wait_for_their_next_attempt_hide_nobody(database: Engine) -> None:
    post(database, "busy", 1)
    held = PreemptiveClaim(claim(database))
    for n in range(60):
        post(database, f"later {n}", 1)
    execute(database, "UPDATE slices SET not_before = now() + interval '1 h'")
    with database.begin() as other:
        fair_share.lock_pool(other, "default")  # a claim for somebody would wait for its end
        assert claim(database, preemptive=held) == []
    ready = post(database, "ready", 1)
    assert [lease.job_id for lease in claim(database)] == [ready]


def both_claim(database: Engine, rounds: int) -> Counter[str]:
    """Two workers of the pool, one for each model: the slices that each tenant got."""
    got: Counter[str] = Counter()
    for _ in range(rounds):
        for model in (ECHO, OTHER):
            leases = transact(database, claims.claim, 1, {model: SLICE}, 60)
            settle(database, leases)
            got.update(lease.tenant for lease in leases)
    return got


def test_turns_are_taken_where_the_pool_moves_on_by_the_work_of_others(database: Engine) -> None:
    post(database, "a", 1000)
    for _ in range(40):
        post(database, "flood", SLICE, model="other")
    post(database, "c", 100, model="other")
    got = both_claim(database, 20)
    assert got["c"] == pytest.approx(got["flood"], abs=2)


def test_more_tenants_than_a_claim_looks_at_take_turns_there(database: Engine) -> None:
    weigh(database, a=0.25)
    post(database, "a", 2000)
    for n in range(60):
        post(database, f"t{n:02}", 2 * SLICE, model="other")
    assert len(both_claim(database, 61)) == 61


def test_the_samples_are_claimed_as_they_are_declared(database: Engine) -> None:
    submit(database, SAMPLES, "a", Order("batchstring"), array=["x"])
    [lease] = transact(database, claims.claim, 1, dict.fromkeys(SAMPLES, 1), 60)
    assert lease.model == "batchstring@1"


@pytest.mark.parametrize("expires_in_s", [5e-324, 1e-300, None])
def test_jobs_expire_as_soon_as_a_number_says(database: Engine, expires_in_s: float | None) -> None:
    id = post(database, "a", 1, expires_in_s=expires_in_s)
    assert [lease.job_id for lease in claim(database)] == [id]


# -- jobs that aren't to be interrupted: left by spot workers to others, as long as there are any


def spot_claim(database: Engine, *stays: str, room: int = 1000) -> list[str]:
    """Classes of what a spot worker claims. stays: models that others are ready for."""
    found = transact(database, claims.claim, 1, {ECHO: room, OTHER: room}, 60, stays=stays)
    return sorted(lease.job_class for lease in found)


def test_jobs_of_other_classes_are_claimed_past_those_that_stay(database: Engine) -> None:
    for job_class in ("interactive", "standard", "bulk"):
        post(database, "t", 30, job_class=job_class)
    assert spot_claim(database, "echo@1") == ["bulk"] * 3 + ["standard"] * 3
    assert spot_claim(database, "echo@1") == []
    assert spot_claim(database) == ["interactive"] * 3


def test_models_that_nobody_else_is_ready_for_leave_nothing(database: Engine) -> None:
    post(database, "t", 30, "other", job_class="interactive")
    assert spot_claim(database, "echo@1") == ["interactive"] * 3


def test_more_that_stay_than_a_claim_looks_at_hide_nothing(database: Engine) -> None:
    post(database, "t", 300, job_class="interactive")
    post(database, "t", 10, job_class="bulk")
    assert spot_claim(database, "echo@1", room=10) == ["bulk"]
