"""Items that go on from their checkpoint on another worker, on a real database."""

import threading
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from typing import Any
from uuid import UUID

import orjson
import pytest
import redis
from sqlalchemy import Engine, text

from jobs import clock, ids
from jobs.blobs.payloads import Payloads
from jobs.models.pricing import Price
from jobs.models.registry import Registry
from jobs.settings import Settings
from jobs.store.queue import checkpoints, reap, workers
from jobs.store.queue.checkpoints import ChoiceProgress, Progress
from jobs.store.queue.claim import Lease
from jobs.usecases.submit import Order, submit
from tests.integration.workers.generation.host_bench import MODEL, Bench
from tests.support.clients import chat
from tests.support.stores.soundness import broken_invariants
from tests.support.stores.transactions import execute, scalar
from tests.support.wait import PATIENCE_S, eventually
from workers.device.host import Host
from workers.items.in_flight import ClaimedBatch
from workers.items.sources import InputSources
from workers.process.checkpointing import Checkpointer
from workers.process.slice_runner import SliceRunner

TENANT = "t"
WORDS = [f"w{n}" for n in range(200)]
TEXT = " ".join(WORDS)


class Worker:
    """A host with the slices of one incarnation, whose checkpoints the test writes."""

    def __init__(
        self, settings: Settings, database: Engine, client: "redis.Redis", **options: Any
    ) -> None:
        self.database = database
        with database.begin() as tx:
            self.incarnation = workers.register(tx, "w", "default", "cpu", [MODEL.key])
        self.bench = Bench(client, worker=str(self.incarnation), **options)
        hosts: dict[str, Host] = {MODEL.key: self.bench.host}
        payloads = Payloads.connect(settings.blobs, settings.blob_over_kb, settings.s3_endpoint)
        price = Price(per_1k_output_tokens=Decimal(1), per_1k_input_tokens=Decimal(1))
        inputs = InputSources(payloads)
        self.slices = SliceRunner(
            database, hosts, self.incarnation, 60, inputs, price=lambda model: price
        )
        self._checkpointer = Checkpointer(database, hosts)
        self._thread = threading.Thread(target=self._work)

    def start(self) -> None:
        self.bench.start()
        self._thread.start()

    def _work(self) -> None:
        while self.slices.work():
            pass

    def checkpoint(self) -> None:
        self._checkpointer.write()

    def emitted(self) -> int:
        """Tokens that its engine emitted."""
        return self.bench.engine.tokens.total()

    def join(self) -> None:
        """Waits until it has found no more slices: it claims none from now on."""
        self._thread.join(PATIENCE_S)

    def end(self) -> None:
        self.bench.engine.go_on()
        if self._thread.ident:
            self.join()
        self.bench.stop()


Made = Callable[..., Worker]


@pytest.fixture
def made(settings: Settings, database: Engine, redis_client: "redis.Redis") -> Iterator[Made]:
    """Makes workers."""
    found: list[Worker] = []

    def make(**options: Any) -> Worker:
        found.append(Worker(settings, database, redis_client, **options))
        return found[-1]

    yield make
    for worker in found:
        worker.end()


def post(database: Engine, *inputs: Any) -> UUID:
    items = [{"input": value} for value in inputs]
    id: UUID = submit(database, Registry([MODEL]), TENANT, Order("talk"), array=items).id
    return id


def stored(database: Engine, job: UUID) -> Progress | None:
    with database.connect() as tx:
        return checkpoints.read_item(tx, job, 0)


def begun(worker: Worker, job: UUID) -> Progress:
    """The checkpoint of an item that is the beginning of its text."""
    found = stored(worker.database, job)
    assert found
    assert found.choices[0].tokens
    assert found.choices[0].text == " ".join(WORDS[: len(found.choices[0].tokens)])
    return found


def assert_whole(output: dict[str, Any]) -> None:
    """It has the whole text, each token once."""
    assert texts(output) == [TEXT]
    assert output["usage"]["completion_tokens"] == len(WORDS)


def lose(worker: Worker) -> None:
    """Its supervisor says that the worker was killed, and the keeper frees its slices."""
    with worker.database.begin() as tx:
        workers.report_death(tx, worker.incarnation, "killed", "")
        assert reap.reap(tx, 60.0)


def outputs(database: Engine, job: UUID) -> list[dict[str, Any]]:
    """Outputs of a job, once it has ended."""
    query = text("SELECT output FROM results WHERE job_id = :job ORDER BY seq")
    ended = text("SELECT finished_at FROM jobs WHERE id = :job")
    with database.connect().execution_options(isolation_level="AUTOCOMMIT") as tx:
        eventually(lambda: tx.scalar(ended, {"job": job}))
        return [orjson.loads(output) for output in tx.scalars(query, {"job": job})]


def texts(output: dict[str, Any]) -> list[str]:
    return [choice["message"]["content"] for choice in output["choices"]]


def rows(database: Engine, table: str) -> int:
    return int(scalar(database, f"SELECT count(*) FROM {table}"))


def check(database: Engine) -> None:
    """All invariants hold, the ledger's among them, and no checkpoint is left."""
    assert broken_invariants(database) == set()
    assert rows(database, "checkpoints") == 0


def halted(worker: Worker, tokens: int) -> None:
    """Starts a worker, whose steps wait once an item has so many tokens."""
    worker.bench.engine.until = tokens
    worker.start()
    worker.bench.halted()


def checkpointed(worker: Worker, job: UUID, tokens: int = 20, emitted: int = 0) -> None:
    """Starts a worker, whose steps wait once the first choice has so many tokens in its checkpoint.

    emitted: tokens of all choices of an item by then.
    """
    halted(worker, emitted or tokens)

    def done() -> bool:
        worker.checkpoint()
        found = stored(worker.database, job)
        return bool(found and len(found.choices[0].tokens) >= tokens)

    eventually(done)


def test_an_item_of_a_killed_worker_goes_on_from_its_checkpoint(
    database: Engine, made: Made
) -> None:
    job = post(database, chat(TEXT))
    killed, other = made(step_ms=5.0), made()
    checkpointed(killed, job, 100)
    before = begun(killed, job)
    assert before.device_us >= 100 * 5000
    lose(killed)
    other.start()
    [output] = outputs(database, job)
    assert_whole(output)
    assert other.emitted() == len(WORDS) - len(before.choices[0].tokens)
    check(database)
    assert scalar(database, "SELECT device_us FROM usage") > before.device_us


def test_a_worker_that_comes_back_adds_nothing(database: Engine, made: Made) -> None:
    job = post(database, chat(TEXT))
    zombie, other = made(step_ms=5.0), made(step_ms=5.0)
    checkpointed(zombie, job)
    lose(zombie)
    zombie.checkpoint()
    before = stored(database, job)
    zombie.bench.engine.go_on()
    eventually(lambda: zombie.emitted() > 100)
    zombie.checkpoint()
    assert stored(database, job) == before
    checkpointed(other, job, 40)
    other.bench.engine.go_on()
    zombie.checkpoint()
    zombie.slices.close()
    [output] = outputs(database, job)
    assert_whole(output)
    check(database)


def test_a_worker_that_drains_loses_no_token(database: Engine, made: Made) -> None:
    """The step that runs is the last one, and its tokens are in the last checkpoint."""
    job = post(database, *(chat(TEXT) for _ in range(4)))
    drained, other = made(), made()
    halted(drained, 40)
    drained.slices.close()
    drained.bench.engine.go_on()
    eventually(lambda: rows(database, "checkpoints") == 4)
    emitted = drained.emitted()
    assert 0 < emitted < 4 * len(WORDS)
    other.start()
    assert [texts(one) for one in outputs(database, job)] == [[TEXT]] * 4
    assert drained.emitted() + other.emitted() == 4 * len(WORDS)
    assert [len(one.emitted) > 0 for one in other.bench.engine.added] == [True] * 4
    check(database)


def test_choices_prompts_logprobs_and_stop_strings_go_on(database: Engine, made: Made) -> None:
    several = {"prompt": [TEXT, "a b"], "n": 2, "max_tokens": 150, "logprobs": 1}
    scored = {**several, "n": 1, "echo": True, "prompt_logprobs": 1}
    stopped = {"stop": ["w120 w121 w122"], "return_token_ids": True}
    inputs = {**several, "return_token_ids": True}, chat(TEXT, **stopped), scored
    job = post(database, *inputs)
    alone, killed, other = made(), made(step_ms=5.0), made()
    undisturbed = post(database, *inputs)
    execute(database, "UPDATE slices SET state = 'held' WHERE job_id = :job", {"job": job})
    alone.start()
    expected = outputs(database, undisturbed)
    alone.join()
    execute(database, "UPDATE slices SET state = 'ready' WHERE job_id = :job", {"job": job})
    checkpointed(killed, job, 30, emitted=80)
    before = stored(database, job)
    assert before
    assert [choice.finish_reason for choice in before.choices] == [None, None, "stop", "stop"]
    lose(killed)
    other.start()
    found = outputs(database, job)
    assert [_without_id(one) for one in found] == [_without_id(one) for one in expected]
    assert [len(one["logprobs"]["tokens"]) for one in found[0]["choices"]] == [150, 150, 2, 2]
    assert [len(one["prompt_logprobs"]) for one in found[2]["choices"]] == [200, 2]
    assert [len(one["logprobs"]["tokens"]) for one in found[2]["choices"]] == [350, 4]
    assert found[1]["choices"][0]["stop_reason"] == "w120 w121 w122"
    counts = [len(found[1]["prompt_token_ids"]), len(found[1]["choices"][0]["token_ids"])]
    assert counts == [200, 123]
    listed = [(len(one["prompt_token_ids"]), len(one["token_ids"])) for one in found[0]["choices"]]
    assert listed == [(200, 150)] * 2 + [(2, 2)] * 2
    check(database)


def _without_id(output: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in output.items() if name not in ("id", "created")}


def test_items_with_a_checkpoint_go_before_new_ones(hosted: Callable[..., Bench]) -> None:
    bench = hosted(sequences=1)
    lease = Lease(ids.new(), 0, 3, 1, TENANT, MODEL.key, "{}", due_at=clock.now())
    [in_flight] = ClaimedBatch([lease]).slices
    in_flight.checkpoints[2] = Progress([ChoiceProgress(0, [7], "e")])
    in_flight.expect(3)
    inputs = [chat("a b"), chat("c d"), chat("e f g")]
    bench.host.submit([in_flight] * 3, range(3), inputs, {})
    bench.start()
    eventually(lambda: in_flight.finished)
    assert [texts(one.output) for one in in_flight.outcomes] == [["e f g"], ["a b"], ["c d"]]
    assert [one.emitted for one in bench.engine.added] == [(7,), (), ()]


def test_one_write_holds_all_items_of_a_host(database: Engine, made: Made) -> None:
    job = post(database, *(chat(TEXT) for _ in range(20)))
    worker, written = made(), list[Sequence[Any]]()
    halted(worker, 50)  # each has its first
    worker.bench.host.checkpoint(lambda found: written.append(found.pieces))
    [pieces] = written
    assert len(pieces) == 20
    assert {piece.job_id for piece in pieces} == {job}
    worker.bench.engine.until = 100
    worker.bench.engine.go.set()
    worker.bench.halted()
    worker.bench.host.checkpoint(lambda found: written.append(found.pieces))
    assert all(one.position >= len(two.tokens) for one, two in zip(written[1], pieces, strict=True))


def test_a_checkpoint_that_could_not_be_written_comes_with_the_next(
    database: Engine, made: Made
) -> None:
    job = post(database, chat(TEXT))
    worker = made()
    halted(worker, 20)

    def fail(unsaved: Any) -> None:
        raise ConnectionError

    with pytest.raises(ConnectionError):
        worker.bench.host.checkpoint(fail)
    worker.checkpoint()
    assert begun(worker, job)
