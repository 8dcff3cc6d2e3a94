"""A worker's models: when each is there for calls, and when it is not any more."""

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import orjson
import pytest
import redis
from sqlalchemy import Engine

from jobs import clock, ids
from jobs.calls.keys import reply_key
from jobs.calls.lanes import Terms, lane_name
from jobs.calls.messages import Call, unpack_replies
from jobs.calls.redis import RedisLanes
from jobs.explain.workers import Hand, hands
from jobs.models import models_file
from jobs.models.watcher import ModelsFile
from jobs.rollouts.controller import Decision
from jobs.rollouts.policy import Policy
from jobs.scaling.advice.advice import Advice
from jobs.settings import Settings
from jobs.store.db import Tx
from jobs.store.monitoring import workers as fleet
from jobs.store.queue import settle as settling
from jobs.store.queue import workers
from jobs.store.queue.claim import Lease
from jobs.store.queue.workers import ModelStatus
from jobs.store.registry import aliases, rollouts
from jobs.store.tenancy import EVERYBODY, acting
from jobs.telemetry.reports import reader
from jobs.usecases.submit import Order, submit
from tests.support.models import paced
from tests.support.stores.transactions import scalar, transact
from tests.support.wait import PATIENCE_S, eventually
from workers.device.claim_capacity import CLAIMS_IN_FLIGHT
from workers.device.monitoring.watchdog import FD_VARIABLE, Watch
from workers.engines import registry as engines
from workers.process import residency
from workers.process.runtime import Runtime

ENTRY = """
[[model]]
name = "{name}"
version = "{version}"
engine = "{engine}"
memory_mb = {memory_mb}
{more}
"""


def entry(
    name: str, version: str = "1", engine: str = "echo", memory_mb: int = 0, more: str = ""
) -> str:
    return ENTRY.format(name=name, version=version, engine=engine, memory_mb=memory_mb, more=more)


BROKEN = entry("broken", engine="function", more='options = { function = "no.such:thing" }')


class Bench:
    """A worker in this process, its models file, and what others see of it."""

    def __init__(self, settings: Settings, database: Engine, client: "redis.Redis") -> None:
        self.settings, self.database, self.client = settings, database, client
        self.path = settings.home / "models.toml"
        self._runtimes: list[Runtime] = []

    def declare(self, *entries: str) -> None:
        self.path.write_text("".join(entries))

    def start(
        self,
        stop_consuming: Callable[[], None] = lambda: None,
        leave: Callable[[], None] = lambda: None,
        **changes: object,
    ) -> Runtime:
        settings, models = self.settings.evolve(models=self.path, **changes), ModelsFile(self.path)
        runtime = Runtime(settings, models, stop_consuming=stop_consuming, leave=leave)
        self._runtimes.append(runtime)
        runtime.start()
        return runtime

    def stop(self) -> None:
        for runtime in self._runtimes:
            runtime.stop()

    def lanes(self, model: str) -> RedisLanes:
        return RedisLanes(self.client, model)

    def replicas(self, model: str) -> int:
        return self.lanes(model).look("nobody/0").replicas

    def slots(self, model: str) -> float | None:
        """Returns the number of slots that its worker reports."""
        return reader.read(self.client).gauge("millrace_model_slots", model=model)

    def hands(self, model: str) -> tuple[Hand, ...]:
        """Returns what its workers report to have in hand."""
        return hands(reader.read(self.client).reports, model)

    def states(self) -> dict[str, dict[str, int]]:
        """Returns the number of workers by model and state."""
        found = transact(self.database, workers.model_statuses, 2 * self.settings.lease_s)
        return {model: dict(standing.states) for model, standing in found.items()}

    def standing(self, model: str) -> ModelStatus:
        return transact(self.database, workers.model_statuses, 60)[model]

    def stands(self, **expected: str) -> Callable[[], bool]:
        """One worker has each of these models, in its version 1, in this state."""
        wanted = {f"{name}@1": {state: 1} for name, state in expected.items()}
        return lambda: self.states() == wanted

    def call(self, model: str, value: str) -> bool:
        """Puts a call; whether it was let in."""
        call = Call(ids.show("call", ids.new()), lane_name({}, 0), "tenant", value, 1, "api-1")
        lanes = self.lanes(model)
        return lanes.put(call, target_ms=500, timeout_ms=60_000, most=10, terms=Terms()) is None

    def send(self, model: str, value: str) -> None:
        """Puts a call as soon as it is let in: a worker's pulse follows the state that it says."""
        eventually(lambda: self.call(model, value))

    def answer(self) -> object:
        found = eventually(lambda: self.client.lpop(reply_key("api-1")))
        [[_, output, *_]] = unpack_replies(found)
        return output and orjson.loads(output)


@pytest.fixture
def bench(settings: Settings, database: Engine, redis_client: "redis.Redis") -> Iterator[Bench]:
    bench = Bench(settings, database, redis_client)
    yield bench
    bench.stop()


def test_a_worker_is_there_until_it_stops_and_ready_until_it_drains(bench: Bench) -> None:
    bench.declare(entry("a"))
    runtime = bench.start(lease_s=60)

    def pulse() -> tuple[int, int]:
        return bench.replicas("a@1"), bench.client.zcard(bench.lanes("a@1").keys("alive"))

    eventually(lambda: pulse() == (1, 1))
    eventually(bench.stands(a="ready"))
    runtime.drain()
    assert pulse() == (0, 1)
    runtime.stop()
    assert pulse() == (0, 0)
    assert bench.states() == {}
    with bench.database.begin() as tx:
        [worker] = fleet.page(tx)
        assert worker.state == "stopped"
        assert not fleet.request_drain(tx, worker.incarnation, True)


def test_a_worker_reports_what_it_has_in_hand(bench: Bench) -> None:
    options = 'options = { function = "tests.support.models.paced:slow", samples = ["x"] }'
    bench.declare(entry("a", engine="function", more=f"{options}\nlimits = {{ max_batch = 2 }}"))
    runtime = bench.start()
    slices = runtime.slices
    eventually(bench.stands(a="ready"))
    submit(bench.database, models_file.load(bench.path), "t", Order("a"), array=["x"] * 200)
    assert slices is not None
    nudged = threading.Thread(target=slices.work)
    nudged.start()

    def launching() -> list[Hand]:
        return [hand for hand in bench.hands("a@1") if hand.items and hand.slices]

    [hand] = eventually(launching)
    runtime.drain()
    nudged.join()
    assert hand.items == 2
    assert hand.launched_s < PATIENCE_S
    assert (hand.alone_s or 0) >= 0.9 * paced.LAUNCH_S


def test_a_worker_that_stops_has_settled_preemptively_claimed_slices(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    settle, settles = settling.settle, threading.Event()

    def slowly(tx: Tx, leases: Sequence[Lease], *args: Any, **named: Any) -> int:
        if leases[0].tenant == "small":
            settles.set()
            clock.sleep(0.5)
        return settle(tx, leases, *args, **named)

    monkeypatch.setattr(settling, "settle", slowly)
    options = 'options = { function = "workers.engines.samples:batchstring", samples = ["x"] }'
    small = "limits = { slice_items = 100 }"  # a third of a second: none is cut
    bench.declare(entry("a", engine="function", more=f"{options}\n{small}"))
    runtime = bench.start(lease_s=60)
    eventually(bench.stands(a="ready"))
    models = ModelsFile(bench.path).models
    submit(bench.database, models, "flood", Order("a"), array=["x"] * 5000)
    slices = runtime.slices
    assert slices is not None

    def work() -> None:
        while slices.work():
            pass

    def leased(tenant: str) -> int:
        found = "SELECT count(*) FROM slices WHERE state = 'leased' AND tenant_id = :tenant"
        return int(scalar(bench.database, found, {"tenant": tenant}) or 0)

    nudged = [threading.Thread(target=work) for _ in range(CLAIMS_IN_FLIGHT)]
    for thread in nudged:
        thread.start()
    eventually(lambda: leased("flood") == CLAIMS_IN_FLIGHT)
    submit(bench.database, models, "small", Order("a"), array=["x"])
    assert settles.wait(PATIENCE_S)
    runtime.drain()
    for thread in nudged:
        thread.join()
    runtime.stop()
    assert leased("small") == 0


def test_a_model_that_cannot_be_loaded_is_seen_and_harms_no_other(bench: Bench) -> None:
    bench.declare(BROKEN, entry("large", memory_mb=2000), entry("a", memory_mb=400))
    bench.start(memory_mb=1000)
    eventually(bench.stands(a="ready", broken="failed", large="failed"))
    assert "no.such:thing" in bench.standing("broken@1").error
    assert "MILLRACE_MEMORY_MB" in bench.standing("large@1").error
    assert bench.standing("a@1").load_ms > 0
    eventually(lambda: bench.replicas("a@1") == 1)  # Redis is told apart from the database
    assert bench.replicas("broken@1") == 0


def test_what_does_not_fit_comes_when_it_is_called_and_the_least_used_goes(bench: Bench) -> None:
    bench.declare(*(entry(name, memory_mb=400) for name in "abc"))
    bench.start(memory_mb=1000, min_stay_s=0.0)
    eventually(bench.stands(a="ready", b="ready", c="absent"))
    bench.send("a@1", "recent")
    assert bench.answer() == "recent"
    assert not bench.call("c@1", "refused")
    eventually(bench.stands(a="ready", b="absent", c="ready"))
    eventually(lambda: bench.replicas("b@1") == 0)
    bench.send("c@1", "let in")
    assert bench.answer() == "let in"


def test_what_does_not_fit_comes_for_a_job_as_well(bench: Bench) -> None:
    bench.declare(entry("a", memory_mb=400), entry("b", memory_mb=400))
    bench.start(memory_mb=500, min_stay_s=0.0)
    eventually(bench.stands(a="ready", b="absent"))
    submit(bench.database, models_file.load(bench.path), "t", Order("b"), array=["x"])
    eventually(bench.stands(a="absent", b="ready"))


def test_one_of_two_workers_loads_a_requested_model(bench: Bench) -> None:
    bench.settings = bench.settings.evolve(lease_s=60)  # each counts as alive on a busy machine
    bench.declare(entry("a", memory_mb=400), entry("b", memory_mb=400))
    for _ in range(2):
        bench.start(memory_mb=500, min_stay_s=0.0)
    eventually(lambda: bench.states() == {"a@1": {"ready": 2}, "b@1": {"absent": 2}})
    both = {"ready": 1, "absent": 1}

    def one_has_loaded_it() -> bool:
        bench.call("b@1", "refused")  # again and again, as its clients would
        return bench.states() == {"a@1": both, "b@1": both}

    eventually(one_has_loaded_it, every_s=0.2)


def test_as_many_workers_load_a_model_as_keepers_advise(bench: Bench) -> None:
    bench.settings = bench.settings.evolve(lease_s=60)
    bench.declare(entry("x", more="on_demand = true"))
    for _ in range(3):
        bench.start()
    eventually(lambda: bench.states() == {"x@1": {"absent": 3}})
    bench.call("x@1", "refused")
    eventually(lambda: bench.states() == {"x@1": {"ready": 1, "absent": 2}})

    def loaded() -> bool:
        Advice(replicas={"x@1": 2}).write(bench.client)  # a keeper renews it
        return bench.states() == {"x@1": {"ready": 2, "absent": 1}}

    eventually(loaded, every_s=1.0)


def test_versions_come_and_go_with_the_models_file(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(residency, "REMOVED_STAYS_S", PATIENCE_S)
    bench.declare(entry("x"))
    bench.start()
    eventually(lambda: bench.states() == {"x@1": {"ready": 1}})
    bench.declare(entry("x"), entry("x", "2"))
    eventually(lambda: bench.states() == {"x@1": {"ready": 1}, "x@2": {"ready": 1}})
    bench.path.write_text("this is not TOML")
    bench.declare(entry("x", "2"))
    bench.send("x@1", "an api that has not heard of it yet")
    monkeypatch.setattr(residency, "REMOVED_STAYS_S", 0.0)
    eventually(lambda: bench.states() == {"x@2": {"ready": 1}})
    assert bench.answer() == "an api that has not heard of it yet"
    eventually(lambda: bench.replicas("x@1") == 0)


def test_a_canary_on_demand_that_was_rolled_back_leaves_the_memory(
    bench: Bench, database: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(residency, "REMOVED_STAYS_S", 0.2)
    bench.declare(entry("x"), entry("x", "2", more="on_demand = true"))
    bench.start()
    eventually(lambda: bench.states() == {"x@1": {"ready": 1}, "x@2": {"absent": 1}})
    with acting(database, EVERYBODY) as tx:
        aliases.put(tx, "x", "stable", "1", "cli")
        row = rollouts.start(tx, "x", "1", "2", Policy(), "", actor="cli", tenant="t")
    for _ in range(2):
        assert not bench.call("x@2", "hi")
        eventually(lambda: bench.states() == {"x@1": {"ready": 1}, "x@2": {"ready": 1}})
        bench.send("x@2", "hi")
        assert bench.answer() == "hi"
        with acting(database, EVERYBODY) as tx:
            rollouts.apply(tx, row, Decision("roll_back", "it fails"), "cli")
        eventually(lambda: bench.states() == {"x@1": {"ready": 1}, "x@2": {"absent": 1}})
        with acting(database, EVERYBODY) as tx:
            row = rollouts.start(tx, "x", "1", "2", Policy(), "", actor="cli", tenant="t")


def test_the_version_that_an_alias_meant_is_kept_warm(bench: Bench, database: Engine) -> None:
    with acting(database, EVERYBODY) as tx:
        for version in "12":
            aliases.put(tx, "x", "stable", version, "cli")
    fitting = entry("x", memory_mb=400), entry("y", memory_mb=400)
    bench.declare(*fitting, entry("z", memory_mb=400))
    bench.start(memory_mb=1000, min_stay_s=0)
    eventually(bench.stands(x="ready", y="ready", z="absent"))
    for model in "xy":  # x is the least recently used
        bench.send(f"{model}@1", "hi")
        assert bench.answer() == "hi"
    assert not bench.call("z@1", "hi")
    eventually(bench.stands(x="ready", y="absent", z="ready"))


def test_a_drained_worker_lives_on_with_nothing_to_do(bench: Bench, database: Engine) -> None:
    stopped, left = threading.Event(), threading.Event()
    bench.declare(entry("echo"))
    bench.start(stopped.set, left.set, metrics_window_s=1.0)
    eventually(lambda: bench.states().get("echo@1") == {"ready": 1})
    eventually(lambda: bench.slots("echo@1"))
    with database.begin() as tx:
        [worker] = fleet.page(tx)
        assert fleet.request_drain(tx, worker.incarnation, True)
    eventually(lambda: bench.states() == {"echo@1": {"draining": 1}})
    eventually(stopped.is_set)
    assert not left.is_set()
    eventually(lambda: bench.replicas("echo@1") == 0)
    eventually(lambda: bench.slots("echo@1") == 0)
    assert transact(database, fleet.request_drain, worker.incarnation, False)
    assert left.wait(PATIENCE_S)  # its supervisor starts another


def test_a_resumed_worker_has_what_it_had_when_it_was_drained(
    bench: Bench, database: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = Watch()
    monkeypatch.setenv(FD_VARIABLE, str(watch.fd))
    budget: dict[str, Any] = {"memory_mb": 1000, "min_stay_s": 0}
    rare = "on_demand = true"
    bench.declare(
        entry("first", memory_mb=900),
        entry("rare", memory_mb=600, more=rare),
        entry("other", more=rare),
    )
    left = threading.Event()
    runtime = bench.start(leave=left.set, **budget)
    as_declared = bench.stands(first="ready", rare="absent", other="absent")
    eventually(as_declared)
    had = bench.stands(first="absent", rare="ready", other="absent")
    eventually(lambda: (bench.call("rare@1", "refused"), had())[1], every_s=0.2)
    transact(database, fleet.request_drain, watch.incarnation, True)
    eventually(lambda: bench.states()["rare@1"] == {"draining": 1})
    transact(database, fleet.request_drain, watch.incarnation, False)
    assert left.wait(PATIENCE_S)
    runtime.stop()
    bench.client.flushdb()  # the refused call, which asks for it for ten seconds

    watch.reset()  # as its supervisor does before each start
    runtime = bench.start(**budget)
    eventually(had)
    runtime.stop()
    watch.reset()
    bench.start(**budget)  # in place of one that wasn't drained
    eventually(as_declared)


def test_a_worker_that_drains_by_itself_is_not_resumed(bench: Bench, database: Engine) -> None:
    left = threading.Event()
    bench.declare(entry("echo"))
    runtime = bench.start(leave=left.set)
    eventually(lambda: bench.states().get("echo@1") == {"ready": 1})
    runtime.drain()
    eventually(lambda: bench.states() == {"echo@1": {"draining": 1}})
    with database.begin() as tx:
        [worker] = fleet.page(tx)
        before = worker.heartbeat_at

    def heard_of_again() -> bool:
        return bool(transact(database, fleet.page)[0].heartbeat_at > before)

    eventually(heard_of_again)
    assert not left.is_set()


def test_a_model_is_known_to_be_loaded_as_long_as_it_is(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded, load = threading.Event(), engines.load

    def load_once_told(*arguments: Any) -> Any:
        loaded.wait(PATIENCE_S)
        return load(*arguments)

    monkeypatch.setattr(engines, "load", load_once_told)
    bench.declare(entry("a"))
    pool = bench.lanes("a@1").keys("pool")

    def known_until_ms() -> float:
        return float(bench.client.hget(pool, "loading") or 0)

    bench.start()
    since_ms = eventually(known_until_ms)
    eventually(lambda: known_until_ms() > since_ms)  # by a heartbeat
    assert bench.replicas("a@1") == 0
    loaded.set()
    eventually(lambda: bench.replicas("a@1") == 1)
