"""Advice of a keeper to workers that differ in price, by their reports and the jobs that wait."""

from collections.abc import Mapping
from dataclasses import replace

import pytest
import redis
from sqlalchemy import Engine

from jobs.models.builtin_models import SAMPLES
from jobs.models.watcher import ModelsFile
from jobs.scaling.advice import advice
from jobs.scaling.measure import ModelQueues
from jobs.scaling.signals import Signals
from jobs.settings import Settings
from jobs.telemetry.reports.reports import Report, ReportSet
from jobs.telemetry.reports.window import WindowDelta
from tests.support.stores.store import post
from workers.device.monitoring.watchdog import LaunchDeadline
from workers.engines.echo import Echo
from workers.keeper.scaling.adviser import Adviser
from workers.process.host_table import HostTable

ECHO = SAMPLES.resolve("echo")
KNOWN = {"default": Signals(0.0, ready=2)}
ITEM_MS = 10.0


def report(name: str, price: float) -> Report:
    """A worker that runs an item of echo in ITEM_MS."""
    profile = {"0": {"full_rows": 1, "full_ms": ITEM_MS, "one_ms": ITEM_MS}}
    echo = {"state": "ready", "profile": profile, "slots": 1}
    about = {"pool": "default", "price": price, "state": "ready", "models": {"echo@1": echo}}
    return Report(name, "worker", 0.0, WindowDelta(60, {}, {}), about)


def waiting(items: float) -> Report:
    """A keeper that has counted so many items."""
    queued = {("millrace_queue_items", (("model", "echo@1"),)): items}
    return Report("keeper", "keeper", 0.0, WindowDelta(60, {}, queued), {})


BOTH = report("1", 1.0), report("2", 3.0)


class Stage:
    """Advisers of a platform, a new one at each look, with what they say."""

    def __init__(self, database: Engine, client: "redis.Redis", settings: Settings) -> None:
        self._redis, self._database, self._settings = client, database, settings
        self.active = False

    def leave(
        self, *reports: Report, loads: Mapping[str, Signals] | None = None
    ) -> Mapping[str, object]:
        adviser = Adviser(self._settings, self._redis, ModelsFile(None), self._database)
        adviser.advise(ReportSet(reports), ModelQueues(), KNOWN if loads is None else loads)
        self.active = adviser.active
        return advice.read(self._redis).leave


@pytest.fixture
def stage(database: Engine, redis_client: "redis.Redis", settings: Settings) -> Stage:
    return Stage(database, redis_client, settings)


DEAR = {"2": ["echo@1"]}


def test_a_dear_worker_leaves_items_till_the_cheap_lags(stage: Stage, database: Engine) -> None:
    assert stage.leave(*BOTH, waiting(0)) == DEAR
    post(database, "a")
    assert stage.leave(*BOTH, waiting(20_000)) == DEAR  # 200 s of work, 300 are promised
    assert stage.active
    assert stage.leave(*BOTH, waiting(40_000)) == {}


def test_no_worker_leaves_an_interactive_job(stage: Stage, database: Engine) -> None:
    post(database, "a", job_class="interactive")
    assert stage.leave(*BOTH, waiting(1)) == {}


def test_workers_of_one_price_are_told_nothing(stage: Stage, redis_client: "redis.Redis") -> None:
    assert stage.leave(report("1", 2.0), report("2", 2.0), waiting(5)) == {}
    assert not redis_client.exists(advice.KEY)
    assert not stage.active


@pytest.mark.parametrize(
    ("reports", "loads"),
    [
        ((report("2", 3.0),), KNOWN),  # the cheap one is gone
        (BOTH, {"default": Signals(0.0, ready=2, missing=("reports of workers",))}),
        (BOTH, {}),
        ((), KNOWN),
    ],
)
def test_all_take_items_once_the_cheap_one_is_gone_or_reports_are_missing(
    stage: Stage, reports: tuple[Report, ...], loads: Mapping[str, Signals]
) -> None:
    assert stage.leave(*BOTH) == DEAR
    assert stage.leave(*reports, loads=loads) == {}


def test_it_is_off_where_no_time_is_given(
    database: Engine, redis_client: "redis.Redis", settings: Settings
) -> None:
    assert Stage(database, redis_client, settings.evolve(cheaper_s=0)).leave(*BOTH) == {}


def test_a_worker_follows_advice_until_it_lapses(stage: Stage, redis_client: "redis.Redis") -> None:
    hosts = HostTable(Settings(), 2, redis_client, LaunchDeadline())
    host = hosts.create(replace(ECHO), Echo(), lambda *_: 0)
    hosts.add(host)
    room = host.capacity.room()
    assert room > 0
    stage.leave(*BOTH)
    assert 0 < redis_client.pttl(advice.KEY) <= 1000 * advice.LASTS_S
    hosts.follow_advice()
    assert (host.capacity.room(), host.capacity.preemptive_room()) == (0, 0)
    redis_client.delete(advice.KEY)
    hosts.follow_advice()
    assert host.capacity.room() == room
    redis_client.set(advice.KEY, b"[1")
    hosts.follow_advice()
    assert host.capacity.room() == room
    hosts.drain()
    hosts.stop()
