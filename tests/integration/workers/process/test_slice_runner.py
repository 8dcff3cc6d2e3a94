"""Slices in flight in a worker, and those that go back before they are done."""

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import orjson
import pytest
import redis
from sqlalchemy import Engine, text
from sqlalchemy.exc import OperationalError

from jobs.blobs.payloads import Payloads
from jobs.calls.redis import RedisLanes
from jobs.models.model import Limits, Model
from jobs.models.registry import Registry
from jobs.settings import Settings
from jobs.store.queue import reap, settle, workers
from jobs.usecases.submit import Order, submit
from tests.support.stores.transactions import scalars, transact
from tests.support.wait import PATIENCE_S, eventually
from workers.device.call_puller import CallPuller
from workers.device.claim_capacity import CLAIMS_IN_FLIGHT
from workers.device.host import Host
from workers.device.model_host import ModelHost
from workers.engines.echo import Echo
from workers.items import in_flight
from workers.items.sources import InputSources
from workers.process.slice_runner import SliceRunner
from workers.scheduler.cost import LaunchSize

MODEL = Model("a", "1", "echo", limits=Limits(slice_items=10, max_batch=10))
EMBEDS = replace(MODEL, task="embedding")
SLICES = 6
LISTS = [[f"{n}a", f"{n}b", f"{n}c"] for n in range(3 * SLICES)]


class Bench:
    """A worker whose device doesn't run yet, with a job of six slices, four of them in flight."""

    def __init__(
        self, settings: Settings, database: Engine, client: "redis.Redis",
        model: Model = MODEL, items: Sequence[Any] = ("x",) * 10 * SLICES,
        engine: Echo | None = None, claimed: int = CLAIMS_IN_FLIGHT, item_s: float = 0.0,
        tenants: Sequence[str] = ("t",),
    ) -> None:  # fmt: skip
        self.database = database
        incarnation = transact(database, workers.register, "w", "default", "cpu", [model.key])
        puller = CallPuller(RedisLanes(client, model.key), str(incarnation), 60)
        self.host = ModelHost(model, engine or Echo(), puller, lambda *_: 0)
        if item_s:
            takes(self, item_s)
        hosts: dict[str, Host] = {model.key: self.host}
        payloads = Payloads.connect(settings.blobs, settings.blob_over_kb, settings.s3_endpoint)
        self.slices = SliceRunner(database, hosts, incarnation, 60, InputSources(payloads))
        for tenant in tenants:
            submit(database, Registry([model]), tenant, Order("a"), array=items)
        self._threads = [threading.Thread(target=self._work) for _ in range(CLAIMS_IN_FLIGHT)]
        for thread in self._threads:
            thread.start()
        eventually(lambda: len(self.starts("leased")) == claimed)

    def _work(self) -> None:
        while self.slices.work():
            pass

    def starts(self, state: str) -> list[int]:
        """Returns the first items of the slices in a state."""
        found = "SELECT start FROM slices WHERE state = :state ORDER BY start"
        return scalars(self.database, found, {"state": state})

    def leased_items(self) -> list[int]:
        """Returns the items of each leased slice."""
        found = "SELECT stop - start FROM slices WHERE state = 'leased'"
        return scalars(self.database, found)

    def counted(self) -> tuple[int, int]:
        """Returns the items that succeeded, by the counts of slices and by the ledger."""
        with self.database.connect() as tx:
            slices = tx.scalar(text("SELECT sum(n_succeeded) FROM slices"))
            return int(slices or 0), int(tx.scalar(text("SELECT sum(succeeded) FROM usage")) or 0)

    def outputs(self) -> list[Any]:
        return [orjson.loads(one) for one in scalars(self.database, "SELECT output FROM results")]

    def finish(self) -> None:
        """The device runs, until all threads have come back."""
        self.host.start()
        self.join()

    def join(self) -> None:
        """Waits until all threads have come back."""
        for thread in self._threads:
            thread.join(PATIENCE_S)
        self.host.stop()


Make = Callable[..., Bench]


@pytest.fixture
def make(settings: Settings, database: Engine, redis_client: "redis.Redis") -> Iterator[Make]:
    made: list[Bench] = []

    def make(*given: Any, **named: Any) -> Bench:
        made.append(Bench(settings, database, redis_client, *given, **named))
        return made[-1]

    yield make
    for bench in made:
        bench.slices.close()
        bench.join()


@pytest.fixture
def bench(make: Make) -> Bench:
    return make()


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


@pytest.mark.parametrize(
    ("model", "items", "size"), [(MODEL, ("x",) * 10 * SLICES, 10), (EMBEDS, LISTS, 3)]
)
def test_a_model_that_leaves_gives_back_what_it_has_and_claims_no_more(
    make: Make, model: Model, items: Sequence[Any], size: int
) -> None:
    bench = make(model, items)
    assert bench.starts("leased") == [size * n for n in range(CLAIMS_IN_FLIGHT)]
    bench.slices.retire(bench.host)
    eventually(lambda: not bench.host.capacity.has_claims())
    assert bench.starts("ready") == [size * n for n in range(SLICES)]
    assert not bench.slices.work()
    assert bench.outputs() == []
    bench.finish()


def test_a_runner_that_closes_gives_back_what_it_has_and_claims_no_more(bench: Bench) -> None:
    bench.slices.close()
    bench.join()  # though each thread works until there is nothing to claim
    assert bench.starts("ready") == [10 * n for n in range(SLICES)]
    assert set(scalars(bench.database, "SELECT epoch FROM slices")) == {0, 1}


def takes(bench: Bench, item_s: float) -> None:
    """The model's launches are measured: so long an item."""
    for rows in (1, 5, 10):
        bench.host.scheduler.latency.observe(LaunchSize.alike(rows, 1), rows * item_s)


def test_a_model_whose_launches_take_several_slices_claims_as_many(make: Make) -> None:
    large = replace(MODEL, limits=Limits(max_batch=4000))
    items = 1000 * SLICES
    bench = make(large, ("x",) * items, claimed=SLICES, item_s=0.000_01)  # by two claims
    assert bench.host.capacity.room() == 4000
    bench.finish()
    assert bench.counted() == (items, items)


def test_slices_that_turn_out_long_go_back_and_are_claimed_in_parts(bench: Bench) -> None:
    bench.slices.release_excess()
    assert bench.starts("leased") == [0, 10, 20, 30]
    takes(bench, 1.0)

    def parts() -> bool:  # a slice that is still being read goes back at a later heartbeat
        bench.slices.release_excess()
        return set(bench.leased_items()) == {1}

    eventually(parts)
    assert bench.host.capacity.room() <= 1, "one runs, one waits"
    bench.slices.release_excess()
    assert set(bench.leased_items()) == {1}
    bench.host.start()
    eventually(lambda: not (bench.starts("ready") or bench.starts("leased")))
    bench.join()
    assert bench.counted() == (10 * SLICES, 10 * SLICES)


def test_the_slices_of_a_slow_model_are_cut_when_they_are_claimed(make: Make) -> None:
    bench = make(item_s=1.0, claimed=2)
    assert bench.leased_items() == [1, 1]
    assert bench.starts("leased") == [0, 1]
    bench.slices.retire(bench.host)
    eventually(lambda: not bench.starts("leased"))
    bench.finish()


class Gate(Echo):
    """Ends launches of two items each, as many as it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.allowed = threading.Semaphore(0)

    def run(self, batch: Sequence[Any], params: Any) -> Sequence[Any]:
        """Waits until one more launch may end."""
        assert self.allowed.acquire(timeout=PATIENCE_S)
        return super().run(batch, params)


class Sizes(Echo):
    """Counts the items of each launch."""

    def __init__(self) -> None:
        super().__init__()
        self.launches: list[int] = []

    def run(self, batch: Sequence[Any], params: Any) -> Sequence[Any]:
        self.launches.append(len(batch))
        return super().run(batch, params)


def sizes_of(monkeypatch: pytest.MonkeyPatch, name: str, argument: int) -> list[int]:
    """Sizes of an argument of each call of a function of `settle`."""
    found: list[int] = []
    write = getattr(settle, name)

    def counted(*arguments: Any, **named: Any) -> Any:
        found.append(len(arguments[argument]))
        return write(*arguments, **named)

    monkeypatch.setattr(settle, name, counted)
    return found


@pytest.fixture
def slow(make: Make, monkeypatch: pytest.MonkeyPatch) -> tuple[Bench, Gate]:
    """A slice of ten items that is recorded while it runs: two a launch, which a gate lets pass."""
    monkeypatch.setattr(in_flight, "RECORD_AFTER_S", 0.05)
    gate, model = Gate(), replace(MODEL, limits=replace(MODEL.limits, max_batch=2))
    return make(model, ("x",) * 10, gate, claimed=1), gate


def test_what_ended_of_a_slow_slice_is_seen_and_billed_while_it_runs(
    slow: tuple[Bench, Gate],
) -> None:
    bench, gate = slow
    bench.host.start()
    for launch in (1, 2, 3, 4):
        gate.allowed.release()
        eventually(lambda launch=launch: len(bench.outputs()) == 2 * launch)  # type: ignore[misc]
        assert bench.starts("leased") == [0]
        assert bench.counted() == (2 * launch, 2 * launch)
    gate.allowed.release()
    bench.join()
    assert bench.starts("done") == [0]
    assert bench.counted() == (10, 10)


def test_slices_of_a_second_are_recorded_as_they_settle(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded = sizes_of(monkeypatch, "record", 2)
    monkeypatch.setattr(in_flight, "RECORD_AFTER_S", PATIENCE_S)  # none is slow, whatever it takes
    bench.finish()
    assert len(bench.starts("done")) == SLICES
    assert recorded == []


def test_what_could_not_be_recorded_is_recorded_later(
    slow: tuple[Bench, Gate], monkeypatch: pytest.MonkeyPatch
) -> None:
    record, failed = settle.record, threading.Event()

    def away(*arguments: Any) -> int:
        if not failed.is_set():
            failed.set()
            raise OperationalError("", {}, Exception("away"))
        return record(*arguments)

    monkeypatch.setattr(settle, "record", away)
    bench, gate = slow
    bench.host.start()
    gate.allowed.release()
    assert failed.wait(PATIENCE_S)
    eventually(lambda: len(bench.outputs()) == 2)
    gate.allowed.release(4)
    bench.join()
    assert bench.counted() == (10, 10)


def test_jobs_of_one_item_that_are_claimed_together_share_a_launch_and_a_settlement(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    settled, engine = sizes_of(monkeypatch, "settle", 1), Sizes()
    bench = make(items=["x"], engine=engine, claimed=20, tenants=("t", "u") * 10)
    bench.finish()
    assert settled == [10, 10]
    assert engine.launches == [10, 10]
    assert bench.counted() == (20, 20)


def test_a_slice_whose_settlement_fails_goes_back_alone(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    write = settle.settle

    def refuse_one(tx: Any, leases: Any, *rest: Any, **named: Any) -> int:
        if any(lease.start == 10 for lease in leases):
            raise ValueError("one of its rows can't be written")
        return write(tx, leases, *rest, **named)

    monkeypatch.setattr(settle, "settle", refuse_one)
    bench.finish()
    assert bench.starts("done") == [0, 20, 30, 40, 50]
    assert "1 slices of a@1 go back" in caplog.text
    assert transact(bench.database, reap.reap, 0.0) == 1, "the lease has ended"
    assert bench.starts("ready") == [10]


def test_a_slice_is_done_once_all_of_its_lists_are(make: Make) -> None:
    bench = make(EMBEDS, LISTS)
    bench.finish()
    assert len(bench.starts("done")) == SLICES
    assert sorted(bench.outputs(), key=lambda found: int(found[0][:-1])) == LISTS
