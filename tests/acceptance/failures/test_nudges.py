"""Nudges are hints: whatever befalls the broker, jobs go on, and a worker that leaves gives back
what it has not begun. On Redis, and on RabbitMQ where it is installed."""

import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, nullcontext
from pathlib import Path

import pytest
from amqp.exceptions import PreconditionFailed
from kombu import Connection
from sqlalchemy import Row

from jobs import clock, ids
from millrace import Client
from ops.processes.children import Child
from ops.supervisor.platform import Platform
from tests.support.children import child_of
from tests.support.clients import repeated
from tests.support.jobs import assert_outputs, begun, completed, scalar_of
from tests.support.models.entries import function
from tests.support.models.paced import LAUNCH_S, STEADY
from tests.support.pace import lease_s
from tests.support.platforms import Platforms, database_of, spec
from tests.support.stores import rabbitmq
from tests.support.stores.broker_faults import Broker, RabbitBroker, RedisBroker
from tests.support.stores.transactions import fetch
from tests.support.wait import PATIENCE_S, eventually, slowdown
from workers.broker import queue_of

pytestmark = pytest.mark.nightly

MODELS = STEADY + function("paced:slow", limits={"max_batch": 4, "slice_items": 12})
ITEMS = 300  # of the steady model: three seconds
STALL_S = 10  # "a few seconds", where eight others share the machine
MARGIN_S = 7  # for the same reason; it takes 0.1 to 0.3
MANY = 60  # of the slow model: fifteen seconds
SILENCE_S = 7  # longer than anybody waits for a broker's answer


@pytest.fixture(scope="module", params=["redis", "rabbitmq"])
def broker(
    request: pytest.FixtureRequest, platforms: Platforms, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Broker]:
    asked = spec(MODELS, lease_s=lease_s(3.0))
    if request.param == "redis":
        with platforms.running(asked) as platform:
            yield RedisBroker(platform)
    elif not rabbitmq.installed():
        pytest.skip("rabbitmq-server isn't installed: apt-get install rabbitmq-server")
    else:
        with closing(rabbitmq.Rabbit(tmp_path_factory.mktemp("rabbit"))) as server:
            server.start()
            with platforms.running(asked, broker_url=server.url) as platform:
                yield RabbitBroker(platform, server)


@pytest.fixture
def platform(broker: Broker) -> Iterator[Platform]:
    """Everything runs that ran before, in the same processes: nothing ended and was replaced."""
    before = _pids(broker.platform)
    yield broker.platform
    assert all(child.alive() for child in broker.platform.supervisor.children)
    assert _pids(broker.platform) == before


@pytest.fixture
def client(broker: Broker) -> Iterator[Client]:
    with closing(Client(broker.platform.url)) as made:
        yield made


def _pids(platform: Platform) -> list[int | None]:
    return [child.pid for child in platform.supervisor.children]


def submit(client: Client, items: int = ITEMS, model: str = "steady") -> str:
    return client.jobs.submit(model, [f"item {n}" for n in range(items)]).id


def assert_completed(client: Client, job: str, items: int = ITEMS, within_s: float = 60) -> None:
    eventually(lambda: completed(client, job), timeout_s=within_s)
    assert_outputs(client.jobs.results(job, wait=False), [f"item {n}" for n in range(items)])


def test_a_broker_that_loses_every_nudge_stalls_no_job(
    broker: Broker, platform: Platform, client: Client
) -> None:
    jobs = [submit(client), submit(client)]
    with repeated(lambda _: broker.lose_everything(), callers=1, pause_s=0.01):
        eventually(lambda: completed(client, *jobs))
    for job in jobs:
        assert_completed(client, job)


def test_hundreds_of_nudges_too_many_do_no_harm(
    broker: Broker, platform: Platform, client: Client
) -> None:
    job = submit(client)
    broker.nudge(times=300)
    assert_completed(client, job)
    eventually(lambda: broker.waiting() == 0)


def test_work_goes_on_and_new_work_starts_without_the_broker(
    broker: Broker, platform: Platform, client: Client
) -> None:
    job = submit(client)
    eventually(lambda: begun(client, job))
    broker.die()
    assert_completed(client, job)
    assert_completed(client, submit(client, items=1), items=1, within_s=STALL_S)
    broker.come_back()
    assert_completed(client, submit(client, items=1), items=1, within_s=STALL_S)


def test_a_broker_that_falls_silent_stops_nobody(
    broker: Broker, platform: Platform, client: Client
) -> None:
    job = submit(client)
    eventually(lambda: begun(client, job))
    broker.signal(signal.SIGSTOP)
    try:
        silent_until_s = clock.monotonic() + SILENCE_S
        assert_completed(client, job)
        assert_completed(client, submit(client, items=1), items=1, within_s=STALL_S)
        eventually(lambda: clock.monotonic() > silent_until_s)
    finally:
        broker.signal(signal.SIGCONT)
    assert_completed(client, submit(client, items=1), items=1, within_s=2 * STALL_S)


def test_a_slice_may_take_longer_than_the_broker_waits_for_an_acknowledgement(
    broker: Broker, platform: Platform, client: Client
) -> None:
    """The RabbitMQ of these tests has a consumer_timeout of a second."""
    job = submit(client, items=12, model="slow")
    assert_completed(client, job, items=12)
    assert {row.epoch for row in slices(platform, job)} == {1}


def test_the_queue_is_a_quorum_queue_which_outlives_a_node(
    broker: Broker, platform: Platform
) -> None:
    if not isinstance(broker, RabbitBroker):
        pytest.skip("Redis has no kinds of queues")
    broker.nudge(times=1)  # the queue is there
    with Connection(platform.settings.broker) as connection:
        for kind in ("classic", "quorum"):
            queue = queue_of(platform.settings.pool)(connection.channel())
            queue.queue_arguments = {"x-queue-type": kind}
            with nullcontext() if kind == "quorum" else pytest.raises(PreconditionFailed):
                queue.queue_declare()


def slices(platform: Platform, job: str) -> list[Row[tuple[str, int, int, int]]]:
    statement = "SELECT state, epoch, deaths, lease_owner FROM slices WHERE job_id = :job"
    with database_of(platform) as database:
        return fetch(database, statement, {"job": ids.parse("job", job)})


def test_a_worker_told_to_stop_ends_its_launch_answers_its_calls_and_gives_the_rest_back(
    broker: Broker, client: Client, tmp_path: Path
) -> None:
    platform = broker.platform
    job = submit(client, items=MANY, model="slow")
    eventually(lambda: begun(client, job))
    in_hand = tmp_path / "in-hand"
    with ThreadPoolExecutor() as callers:
        answer = callers.submit(_infer, platform, str(in_hand))
        eventually(in_hand.exists)
        code, took_s = _stop(child_of(platform))
        try:
            assert answer.result() == str(in_hand)
            assert code == 0
            assert took_s < LAUNCH_S + 1.0 + MARGIN_S * slowdown()
            left = slices(platform, job)
            assert {row.state for row in left} <= {"ready", "done"}
            assert {row.epoch for row in left} <= {0, 1}  # only the next claim raises it
            assert {row.deaths for row in left} == {0}
            latest = "SELECT state FROM workers ORDER BY incarnation DESC LIMIT 1"
            assert scalar_of(platform, job, latest) == "stopped"
        finally:
            child_of(platform).start()
    assert_completed(client, job, items=MANY)


def _infer(platform: Platform, value: str) -> object:
    with closing(Client(platform.url)) as made:
        return made.infer("slow", value, timeout_s=PATIENCE_S)["output"]


def _stop(child: Child) -> tuple[int, float]:
    """SIGTERM; the exit code, and the seconds that it took."""
    assert child.process is not None
    told_s = clock.monotonic()
    child.process.send_signal(signal.SIGTERM)
    code = child.process.wait()
    return code, clock.monotonic() - told_s
