"""Two real workers of one model, one at three times the price of the other, and a backlog of jobs:
the cost of its items, and how long they take, where the dear worker leaves items to the cheap one
beside one that takes them wherever it has room.

`small`: a backlog that the cheap worker alone does in a third of the promised time; `large`: one
for which it would need twice that time.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from redis import Redis
from sqlalchemy import text

from jobs import clock, ids
from jobs.scaling.advice import advice
from jobs.store import queries
from millrace import Client
from ops.bench.harness.models_files import models_file, sample
from ops.bench.harness.platform import database_of, own_platform, say, wait_until
from ops.bench.harness.scale import Scale
from ops.bench.results.report import Report
from ops.processes.children import Supervisor
from ops.supervisor.platform import Platform
from ops.supervisor.worker import WatchedWorker, fork_server

ASKED = ("small_cost <= 1.05", "small_drain_of_promise <= 1", "large_drain_of_promise <= 1.2")

_PRICE = 3.0  # of the dear worker; the other's is 1
_ROWS = 10  # of a launch, which takes 100 ms
_ITEM_S = 0.01
_PROMISE_S = 45.0
_BACKLOGS = {"small": 1 / 3, "large": 2.0}  # work of the cheap worker, in promised times
_WITHIN_S = 300.0
_GRACE_S = 30.0
_FOLLOWED_S = 3.0  # a worker looks at advice every two
_BY_POOL = text("""
    SELECT w.pool, sum(s.n_succeeded) FROM slices s JOIN workers w ON w.incarnation = s.worker
    WHERE s.job_id = :job GROUP BY w.pool
""")


@dataclass(frozen=True, slots=True)
class _Run:
    """One backlog, from its submission to its last result."""

    took_s: float
    cost: float  #: device time by price over what it is on the cheap worker alone


def measure(report: Report, scale: Scale) -> None:
    """Runs each backlog on a platform that leaves items to the cheap worker, and on one that
    doesn't."""
    promise_s = scale.seconds(_PROMISE_S)
    for side, cheaper_s in (("", promise_s), ("anywhere_", 0.0)):
        with _platform(cheaper_s) as platform:
            for name, times in _BACKLOGS.items():
                run = _drain(platform, round(times * promise_s / _ITEM_S))
                report.add(
                    f"{side}{name}_", cost=run.cost, drain_s=run.took_s,
                    drain_of_promise=run.took_s / promise_s,
                )  # fmt: skip


@contextmanager
def _platform(cheaper_s: float) -> Iterator[Platform]:
    """Starts a platform with a cheap worker and a dear one, which has followed advice."""
    model = sample("batchstring", pool=("default", "dear"), limits={"max_batch": _ROWS})
    with own_platform(models=models_file(model), cheaper_s=cheaper_s) as platform:
        dear = platform.settings.evolve(pool="dear", price=_PRICE, metrics_port=0)
        logs = platform.settings.home / "dear.log"
        workers = Supervisor([WatchedWorker(fork_server(dear), "dear", dear, logs)])
        workers.start()
        try:
            client = Client(platform.url)
            wait_until(lambda: _ready(client) == 2, "both workers are ready", _WITHIN_S)
            if cheaper_s:
                with Redis.from_url(platform.settings.redis_url) as redis:
                    wait_until(lambda: bool(advice.read(redis)), "there is advice", _WITHIN_S)
                clock.sleep(_FOLLOWED_S)
            yield platform
        finally:
            workers.stop(_GRACE_S)


def _ready(client: Client) -> int:
    return int(client.get("/models")["data"][0]["workers"])


def _drain(platform: Platform, items: int) -> _Run:
    client, since_s = Client(platform.url), clock.monotonic()
    job = client.jobs.submit("batchstring", [b'"a"\n'] * items)["id"]
    wait_until(
        lambda: client.jobs.get(job)["state"] == "completed", "the backlog is done", _WITHIN_S, 0.2
    )
    took_s = clock.monotonic() - since_s
    with database_of(platform) as database, database.connect() as tx:
        ran = queries.pairs(tx, _BY_POOL, {"job": ids.parse("job", job)})
    client.close()
    say(f"{items} items in {took_s:.1f} s: {ran}")
    return _Run(took_s, (ran.get("default", 0) + _PRICE * ran.get("dear", 0)) / items)
