"""Whether there is room for a job: by what its tenant, or its key, has queued and stored."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any
from uuid import UUID

import orjson
import pytest
from sqlalchemy import Engine

from jobs import clock
from jobs.blobs.folder import FolderBlobs
from jobs.blobs.payloads import Payloads
from jobs.errors import Invalid, MillraceError, QuotaExceeded
from jobs.identity import Limit
from jobs.models.builtin_models import SAMPLES
from jobs.models.model import Limits
from jobs.models.registry import Registry
from jobs.store.billing import quota
from jobs.store.jobs import verbs
from jobs.store.queue.settle import settle as settle_rows
from jobs.usecases.submit import Order, submit, submit_source
from tests.support.stores.store import claim, count, job, results, settle
from tests.support.stores.transactions import execute, transact

KEY = "key_01kajf0000000000000000000a"


def post(database: Engine, *limits: Limit, items: int = 1, text: str = "x", **more: Any) -> UUID:
    model, tenant = more.pop("model", "echo"), more.pop("tenant", "default")
    array = [text] * items
    row = submit(database, SAMPLES, tenant, Order(model), array=array, limits=limits, **more)
    id: UUID = row.id
    return id


def exceeded(database: Engine, *limits: Limit, **more: Any) -> QuotaExceeded:
    with pytest.raises(QuotaExceeded) as caught:
        post(database, *limits, **more)
    return caught.value


def run(database: Engine) -> None:
    while leases := claim(database):
        settle(database, leases)


def test_a_job_with_too_many_items_is_refused_at_the_first_beyond(database: Engine) -> None:
    def lines() -> Any:
        yield from [b'"x"'] * 4
        raise AssertionError("nobody reads on")

    bound = Limit(job_items=3)
    with pytest.raises(Invalid) as caught:
        submit(database, SAMPLES, "default", Order("echo"), lines=lines(), limits=[bound])
    assert caught.value.faults[0].code == "too_many_items"
    assert caught.value.more["limit"] == {
        "name": "job_items", "value": 3, "of": "tenant", "model": None
    }  # fmt: skip
    assert "3 items at most (job_items)" in caught.value.detail
    assert count(database, "jobs") == 0
    post(database, bound, items=3)


def test_items_wait_until_they_have_results(database: Engine) -> None:
    bound = Limit(queued_items=5)
    post(database, bound, items=3)
    full = exceeded(database, bound, items=3)
    assert (full.left, full.retryable, full.bound.name) == (2, True, "queued_items")
    assert full.retry_after_s
    assert 30 <= full.retry_after_s <= 37.5  # nothing is known of how fast it drains
    assert count(database, "jobs") == count(database, "slices") == 1
    post(database, bound, items=2)
    run(database)
    with pytest.raises(Invalid):  # no queue would hold it: it is not told to retry
        post(database, bound, items=6)
    post(database, bound, items=5)


def test_when_to_come_again_follows_from_how_fast_the_queue_drains(
    database: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quota, "_RECENT_S", 150.0)
    post(database, items=150)
    run(database)  # one a second
    bound = Limit(queued_items=100)
    post(database, bound, items=100)
    full = exceeded(database, bound, items=40)
    assert full.retry_after_s
    assert 40 <= full.retry_after_s <= 50


def test_models_keys_and_tenants_have_limits_of_their_own(database: Engine) -> None:
    bounds = Limit(queued_items=10), Limit(model="echo", queued_items=2)
    post(database, items=10, tenant="other")
    post(database, *bounds, items=2)
    assert exceeded(database, *bounds).bound.model == "echo"
    post(database, *bounds, model="batchstring", items=8)
    assert exceeded(database, *bounds, model="batchstring").bound.model == ""
    of_key = Limit(key=KEY, queued_items=2, stored_bytes=100)
    post(database, of_key, items=2, key=KEY)
    assert exceeded(database, of_key, key=KEY).bound.key == KEY
    run(database)
    stored = exceeded(database, of_key, text="x" * 100, key=KEY)
    assert (stored.bound.name, stored.bound.key) == ("stored_bytes", KEY)


def test_inputs_and_outputs_are_stored_until_they_are_pruned_or_deleted(database: Engine) -> None:
    bound = Limit(stored_bytes=100)
    first = post(database, bound, items=4, text="ten chars")  # 11 bytes as JSON
    assert job(database, first).input_bytes == 44
    run(database)
    assert job(database, first).output_bytes == 44
    full = exceeded(database, bound, items=2, text="ten chars")
    assert (full.retryable, full.retry_after_s, full.left) == (False, None, 12)
    assert "DELETE /jobs/" in full.detail
    post(database, bound, text="ten chars")
    run(database)
    execute(database, "UPDATE jobs SET items_pruned = true WHERE id = :id", {"id": first})
    post(database, bound, items=3, text="ten chars")  # 99 bytes
    exceeded(database, bound)
    transact(database, verbs.delete, first, "default")
    post(database, bound, items=3, text="ten chars")


def test_names_metadata_and_parameters_are_stored_too(database: Engine) -> None:
    bound = Limit(stored_bytes=1000)
    names = [{"custom_id": f"{n}" * 500, "input": 1} for n in range(3)]
    with pytest.raises(QuotaExceeded):
        submit(database, SAMPLES, "default", Order("echo"), array=names, limits=[bound])
    id = submit(database, SAMPLES, "default", Order("echo"), array=names[:1], limits=[bound]).id
    assert job(database, UUID(str(id))).input_bytes == 501
    order = Order("minilm", metadata={"a": "é" * 200}, params={"normalize": False})
    row = submit(database, SAMPLES, "default", order, array=["x"], limits=[bound])
    assert row.input_bytes == 3 + len('{"a":""}') + 400 + len('{"normalize":false}')
    with pytest.raises(QuotaExceeded):
        submit(database, SAMPLES, "default", order, array=["x"], limits=[bound])


def test_a_job_that_is_not_read_yet_stores_its_own_fields(database: Engine) -> None:
    bound = Limit(stored_bytes=1000)
    order = Order("echo", metadata={"a": "x" * 400})
    source = {"file": "file_1"}
    row = submit_source(database, SAMPLES, "default", order, source, limits=[bound])
    assert row.input_bytes == 408 + len('{"file":"file_1"}{"on_invalid":"reject"}')
    submit_source(database, SAMPLES, "default", order, source, limits=[bound])
    with pytest.raises(QuotaExceeded):
        submit_source(database, SAMPLES, "default", order, source, limits=[bound])


def test_parameters_of_a_job_are_no_longer_than_an_item(database: Engine) -> None:
    models = Registry([replace(SAMPLES.resolve("minilm"), limits=Limits(max_item_bytes=20))])
    order = Order("minilm", params={"normalize": False, "truncate": 64})
    with pytest.raises(Invalid) as caught:
        submit(database, models, "default", order, array=["x"])
    assert [(fault.loc, fault.code) for fault in caught.value.faults] == [(("params",), "too_long")]


def test_errors_are_stored_too(database: Engine) -> None:
    id = post(database, items=2)
    error = orjson.dumps({"code": "bad", "message": "é" * 300}).decode()
    [lease] = claim(database)
    failed = [replace(row, error=error) for row in results(lease, outcome="failed")]
    transact(database, settle_rows, [lease], failed)
    assert job(database, id).output_bytes == 2 * len(error.encode())


def test_archived_results_are_stored_too(database: Engine) -> None:
    id = post(database, items=10)
    for generation in range(1, 4):
        transact(database, verbs.cancel, id)
        transact(database, verbs.retry, id)
        transact(database, verbs.cancel, id)
        assert job(database, id).output_bytes == generation * 10 * verbs.ARCHIVED_BYTES
    transact(database, verbs.retry, id)
    exceeded(database, Limit(stored_bytes=3100))
    run(database)
    assert job(database, id).output_bytes == 40 * verbs.ARCHIVED_BYTES + 10 * len('"x"')


def test_payloads_in_the_blob_store_count_by_real_length(database: Engine, tmp_path: Any) -> None:
    payloads = Payloads(FolderBlobs(tmp_path), 50)
    large = "x" * 1000
    id = post(database, text=large, payloads=payloads)
    assert job(database, id).input_bytes == 1002
    run(database)  # which stores the reference that it was given as the output
    assert job(database, id).output_bytes == 1002


def test_of_many_at_once_no_more_come_in_than_there_is_room_for(database: Engine) -> None:
    bound = Limit(queued_items=10)
    with ThreadPoolExecutor(16) as pool:
        asked = [pool.submit(post, database, bound) for _ in range(16)]
    refused = [error.code for one in asked if isinstance(error := one.exception(), MillraceError)]
    assert refused == ["quota_exceeded"] * 6
    assert count(database, "items") == 10


def test_as_the_api_sees_it_the_sums_are_the_same(database: Engine, api: Engine) -> None:
    bound = Limit(queued_items=3, stored_bytes=1000)
    post(api, bound, items=2)
    assert exceeded(api, bound, items=2).left == 1


def test_who_finds_much_room_needn_t_look_again_for_each_job(
    database: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = clock.monotonic()
    monkeypatch.setattr(clock, "monotonic", lambda: now_s)
    bound = Limit(queued_items=1000)
    post(database, bound, items=1)
    with database.begin() as other:
        # Holds the tenant's lock: another look would wait for it.
        quota.check_file(other, "default", [Limit(stored_bytes=1_000_000)], 1)
        post(database, bound, items=19)
    execute(database, "UPDATE slices SET start = 0, stop = 990 WHERE stop = 19")  # not counted
    exceeded(database, bound, items=10)


def test_a_slow_sum_is_good_for_longer(database: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    now_s, sums = clock.monotonic(), []

    def count_sum(*_: object) -> int:
        nonlocal now_s
        now_s += 0.4  # as with a million open jobs
        sums.append(now_s)
        return 1

    monkeypatch.setattr(clock, "monotonic", lambda: now_s)
    monkeypatch.setattr(quota, "_queued", count_sum)
    for wait_s in (0.0, 10.0, 9.0, 2.0):
        now_s += wait_s
        post(database, Limit(queued_items=1_000_000))
    assert len(sums) == 2
