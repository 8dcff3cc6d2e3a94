"""Jobs whose slices go by routes: what each slice's version is, and when it changes."""

import json
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from uuid import UUID

import pytest
from sqlalchemy import Engine

from jobs.errors import Invalid, UnknownModel
from jobs.models.builtin_models import SAMPLES
from jobs.models.model import Model
from jobs.models.registered import Registered
from jobs.models.registry import Registry
from jobs.models.routing.rollout import ActiveRollout
from jobs.models.routing.route import Route, Share
from jobs.models.routing.table import RoutingTable
from jobs.models.watcher import ModelsFile
from jobs.states import Outcome
from jobs.store.jobs import detail, read, verbs
from jobs.store.monitoring import diagnostics
from jobs.store.queue import claim as claims
from jobs.store.queue import fair_share, workers
from jobs.store.queue import settle as settling
from jobs.store.queue.claim import Lease
from jobs.store.queue.settle import Attempt
from jobs.store.queue.workers import ModelRow
from jobs.usecases.submit import Order, submit
from tests.support.stores.soundness import broken_invariants
from tests.support.stores.store import claim, result_chunks, results
from tests.support.stores.transactions import fetch, transact, waits_for_lock
from tests.support.wait import eventually
from workers.keeper.rerouting import Rerouting

V1 = replace(SAMPLES.resolve("echo"), limits=replace(SAMPLES.resolve("echo").limits, slice_items=2))
V2, OTHER = (
    replace(V1, version="2"),
    replace(SAMPLES.resolve("batchstring"), name="echo", version="3"),
)
ITEMS = 400
HALF = RoutingTable(routes={("echo", "*"): Route("echo", [Share("1", 50), Share("2", 50)])})
BACK = RoutingTable({("echo", "stable"): "1"})


def served(routing: RoutingTable, *models: Model) -> Registry:
    return Registry(models or (V1, V2), routing)


def post(
    database: Engine, models: Registry, items: int = ITEMS, tenant: str = "default", **order: object
) -> UUID:
    terms: dict[str, object] = {"versioning": "routed"} | order
    ordered = Order("echo", **terms)  # type: ignore[arg-type]
    id: UUID = submit(database, models, tenant, ordered, array=["x"] * items).id
    return id


def versions(database: Engine, job: UUID) -> dict[int, str]:
    """Returns the version of each slice, by its start."""
    rows = fetch(database, "SELECT start, version FROM slices WHERE job_id = :job", {"job": job})
    return {row.start: row.version for row in rows}


def of_version_2(database: Engine, job: UUID) -> list[int]:
    return [start for start, one in versions(database, job).items() if one == "2"]


def settle(
    database: Engine, leases: Sequence[Lease], fail: bool = False, retry: bool = False
) -> None:
    outcome: Outcome = "failed" if fail else "succeeded"
    rows = [row for lease in leases for row in results(lease, outcome=outcome)]
    keys = [(row.job_id, row.tenant, row.seq) for row in rows]
    again = [Attempt(*key, 1, '{"code": "transient"}', None, 0.0) for key in keys]
    transact(database, settling.settle, leases, () if retry else rows, again if retry else ())


def reroute(database: Engine, models: Registry) -> int:
    """Moves slices as a keeper does once it knows of these models."""
    watched = ModelsFile(None)
    watched.declared = watched.models = models
    watched.registered = Registered(routing=models.routing)
    return Rerouting(watched, database).run_once()


def test_slices_have_the_versions_that_calls_under_their_keys_would(database: Engine) -> None:
    models = served(HALF)
    job, pinned = post(database, models), post(database, models, versioning="pinned")
    found = versions(database, job)
    assert Counter(found.values()).keys() == {"1", "2"}
    assert min(Counter(found.values()).values()) > len(found) / 4
    choices = {
        start: models.routing.choose("echo", "default", key=f"{job}/{start}") for start in found
    }
    assert found == {start: one and one.version for start, one in choices.items()}
    assert set(versions(database, pinned).values()) == {"1"}
    leases = claim(database, model=V2)
    assert {lease.model for lease in leases} == {"echo@2"}
    assert {lease.start for lease in leases} == {start for start in found if found[start] == "2"}
    assert transact(database, diagnostics.open_versions, job, "default") == ["1", "2"]
    assert {lease.model for lease in claim(database, model=V1)} == {"echo@1"}
    assert broken_invariants(database) == set()


def test_results_and_the_ledger_name_the_version_of_each_slice(database: Engine) -> None:
    job = post(database, served(HALF), 40)
    found = versions(database, job)
    for model in (V1, V2):
        settle(database, claim(database, model=model))
    lines = map(json.loads, b"".join(result_chunks(database, job)).splitlines())
    expected = {seq: found[seq - seq % 2] for seq in range(40)}
    assert {line["seq"]: line["version"] for line in lines} == expected
    row = transact(database, read.one, "default", job)
    assert {one.seq: one.version for one in read.result_rows(database, row)} == expected
    item = transact(database, detail.item, "default", job, 39)
    assert item
    assert item.version == expected[39]
    billed = fetch(database, "SELECT start, version FROM usage")
    assert {one.start: one.version for one in billed} == found
    assert broken_invariants(database) == set()


def test_slices_that_wait_for_a_version_taken_back_go_to_the_stable(database: Engine) -> None:
    rollout = ActiveRollout("r", "echo", "1", "2", 50, salt="s")
    during = served(RoutingTable({("echo", "stable"): "1"}, {"echo": rollout}))
    job, pinned = post(database, during), post(database, during, versioning="pinned")
    assert reroute(database, during) == 0
    [begun, retried, *_] = of_version_2(database, job)
    leases = claim(database, model=V2, room=4)
    assert [lease.start for lease in leases] == [begun, retried]
    transact(database, settling.record, leases[:1], results(leases[0], begun))
    moved = reroute(database, served(BACK))
    assert moved == Counter(versions(database, job).values())["1"] - _count(during, job, "1")
    assert of_version_2(database, job) == [begun, retried], "slices that run"
    settle(database, leases, retry=True)
    assert reroute(database, served(BACK)) == 1, "without a result"
    assert of_version_2(database, job) == [begun]
    assert claim(database, model=V2)[0].start == begun, "its results have one version"
    assert set(versions(database, pinned).values()) == {"1"}
    assert broken_invariants(database) == set()


def _count(models: Registry, job: UUID, version: str) -> int:
    choices = (
        models.routing.choose("echo", "default", key=f"{job}/{n}") for n in range(0, ITEMS, 2)
    )
    return sum(one.version == version for one in choices if one)


def test_no_slice_changes_its_version_while_it_is_claimed(database: Engine) -> None:
    job = post(database, served(HALF))
    with ThreadPoolExecutor(1) as keeper, database.begin() as tx:
        fair_share.lock_pool(tx, "default")  # as each claim begins
        moved = keeper.submit(reroute, database, served(BACK))
        eventually(lambda: waits_for_lock(database))
        leases = claims.claim(tx, 1, {V2: 20}, 60)
        assert {lease.model for lease in leases} == {"echo@2"}
        tx.commit()
        moved.result()
    assert of_version_2(database, job) == [lease.start for lease in leases]


def test_retries_keep_the_version_while_it_lasts_new_generations_too(database: Engine) -> None:
    models = served(HALF)
    job = post(database, models, 20)
    before = versions(database, job)
    for retry in (True, False):
        for model in (V1, V2):
            settle(database, claim(database, model=model), fail=True, retry=retry)
        reroute(database, models)
        assert versions(database, job) == before
    transact(database, verbs.retry, job)
    assert versions(database, job) == before
    assert reroute(database, served(BACK)) == Counter(before.values())["2"]
    assert broken_invariants(database) == set()


def test_slices_do_not_wait_for_a_version_that_no_worker_could_load(database: Engine) -> None:
    models = served(HALF)
    job = post(database, models, 40)
    with database.begin() as tx:
        worker = workers.register(tx, "w", "default", "cpu", [])
        workers.heartbeat(tx, worker, "ready")
        row = ModelRow("echo@2", "failed", 0.0, 0.0, "tampered")
        workers.report_models(tx, worker, [row])
    assert reroute(database, models) > 0
    assert set(versions(database, job).values()) == {"1"}


def test_a_version_that_takes_other_inputs_gets_no_slices(database: Engine) -> None:
    routes = {("echo", "*"): Route("echo", [Share("1", 0), Share("3", 100)])}
    job = post(database, served(RoutingTable(routes=routes), V1, OTHER), 20)
    assert set(versions(database, job).values()) == {"1"}


def test_a_route_of_one_tenant_is_for_its_jobs_alone(database: Engine) -> None:
    routes = {("echo", "acme"): Route("echo", [Share("1", 0), Share("2", 100)], "acme")}
    models = served(RoutingTable({("echo", "stable"): "1"}, routes=routes))
    job, others = post(database, models, 20, "acme"), post(database, models, 20, "other")
    assert set(versions(database, job).values()) == {"2"}
    assert set(versions(database, others).values()) == {"1"}
    assert reroute(database, models) == 0
    assert reroute(database, served(BACK)) == 10
    assert set(versions(database, job).values()) == {"1"}


@pytest.mark.parametrize("name", ["echo@2", "echo@stable"])
def test_a_job_that_names_a_version_can_not_go_by_routes(database: Engine, name: str) -> None:
    order = Order(name, versioning="routed")
    with pytest.raises(Invalid) as refused:
        submit(database, served(BACK), "default", order, array=["x"])
    [fault] = refused.value.faults
    assert (fault.loc, fault.code) == (("versioning",), "pinned_model")
    assert "name 'echo', else leave it out" in fault.message
    with pytest.raises(UnknownModel):
        submit(database, served(BACK), "t", Order("none", versioning="routed"), array=["x"])
