"""Slices in flight in a worker, and those that go back before they are done."""

import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import orjson
import pytest
import redis
from sqlalchemy import Engine, text

from jobs.blobs.payloads import Payloads
from jobs.calls.redis import RedisLanes
from jobs.models.model import Limits, Model
from jobs.models.registry import Registry
from jobs.settings import Settings
from jobs.store.queue import workers
from jobs.usecases.submit import Order, submit
from tests.support.wait import eventually
from workers.device.call_puller import CallPuller
from workers.device.claim_capacity import CLAIMS_IN_FLIGHT
from workers.device.host import Host
from workers.device.model_host import ModelHost
from workers.engines.echo import Echo
from workers.process.slice_runner import SliceRunner

MODEL = Model("a", "1", "echo", limits=Limits(slice_items=10, max_batch=10))
EMBEDS = replace(MODEL, task="embedding")
SLICES = 6


class Bench:
    """A worker whose device doesn't run yet, with a job of six slices, four of them in flight."""

    def __init__(
        self, settings: Settings, database: Engine, client: "redis.Redis",
        model: Model = MODEL, items: Sequence[Any] = ("x",) * 10 * SLICES,
    ) -> None:  # fmt: skip
        self.database = database
        with database.begin() as tx:
            incarnation = workers.register(tx, "w", "default", "cpu", [model.key])
        puller = CallPuller(RedisLanes(client, model.key), str(incarnation), 60)
        self.host = ModelHost(model, Echo(), puller, lambda *_: 0)
        hosts: dict[str, Host] = {model.key: self.host}
        self.slices = SliceRunner(
            database,
            hosts,
            incarnation,
            60,
            Payloads.connect(settings.blobs, settings.blob_over_kb, settings.s3_endpoint),
        )
        submit(database, Registry([model]), "t", Order("a"), array=items)
        self._threads = [threading.Thread(target=self._work) for _ in range(CLAIMS_IN_FLIGHT)]
        for thread in self._threads:
            thread.start()
        eventually(lambda: len(self.starts("leased")) == CLAIMS_IN_FLIGHT)

    def _work(self) -> None:
        while self.slices.work():
            pass

    def starts(self, state: str) -> list[int]:
        """Returns the first items of the slices in a state."""
        found = "SELECT start FROM slices WHERE state = :state ORDER BY start"
        with self.database.connect() as tx:
            return list(tx.scalars(text(found), {"state": state}))

    def finish(self) -> None:
        """The device runs, until all threads have come back."""
        self.host.start()
        for thread in self._threads:
            thread.join(20)
        self.host.stop()


@pytest.fixture
def bench(settings: Settings, database: Engine, redis_client: "redis.Redis") -> Bench:
    return Bench(settings, database, redis_client)


def test_while_calls_have_the_device_all_but_the_oldest_slice_go_back(bench: Bench) -> None:
    assert bench.starts("leased") == [0, 10, 20, 30]
    for _ in range(2):
        bench.host.capacity.backpressure.count_launch(items=0, calls=50)
        bench.slices.release_excess()
    eventually(lambda: bench.starts("leased") == [0])
    assert bench.starts("ready") == [10, 20, 30, 40, 50]
    assert bench.host.capacity.room() == 0
    bench.finish()  # one after the other
    assert len(bench.starts("done")) == SLICES


def test_a_model_that_leaves_gives_back_what_it_has_in_hand_and_claims_no_more(
    bench: Bench,
) -> None:
    bench.slices.retire(bench.host)
    eventually(lambda: not bench.host.capacity.has_claims())
    assert bench.starts("ready") == [10 * n for n in range(SLICES)]
    assert not bench.slices.work()
    bench.finish()


@pytest.fixture
def lists(settings: Settings, database: Engine, redis_client: "redis.Redis") -> Bench:
    """A worker with slices of three lists of three texts."""
    items = [[f"{n}a", f"{n}b", f"{n}c"] for n in range(3 * SLICES)]
    return Bench(settings, database, redis_client, EMBEDS, items)


def outputs(bench: Bench) -> list[Any]:
    with bench.database.connect() as tx:
        return [orjson.loads(found) for found in tx.scalars(text("SELECT output FROM results"))]


def test_lists_that_are_given_back_are_run_later_and_end_once(lists: Bench) -> None:
    assert lists.starts("leased") == [0, 3, 6, 9]
    lists.slices.retire(lists.host)
    eventually(lambda: not lists.host.capacity.has_claims())
    assert lists.starts("ready") == [3 * n for n in range(SLICES)]
    assert outputs(lists) == []
    lists.finish()


def test_a_slice_is_done_once_all_of_its_lists_are(lists: Bench) -> None:
    lists.finish()
    assert len(lists.starts("done")) == SLICES
    assert sorted(outputs(lists), key=lambda found: int(found[0][:-1])) == [
        [f"{n}a", f"{n}b", f"{n}c"] for n in range(3 * SLICES)
    ]
