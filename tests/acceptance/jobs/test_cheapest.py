"""Jobs where an item is cheapest: two real workers of one model, one at three times the price."""

import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest
from redis import Redis
from sqlalchemy import text

from jobs import ids
from jobs.telemetry.reports import reader
from millrace import Client
from ops.bench.harness.models_files import models_file, sample
from ops.supervisor.platform import Platform
from tests.support.children import child_of
from tests.support.jobs import completed
from tests.support.keys import make_key_at
from tests.support.pace import lease_s
from tests.support.platforms import spec, transaction
from tests.support.processes import spawned
from tests.support.wait import eventually

pytestmark = pytest.mark.nightly
MODELS = models_file(sample("batchstring", pool=("default", "dear"), limits={"max_batch": 20}))
PLATFORM = spec(MODELS, is_closed=True, lease_s=lease_s(3.0), cheaper_s=600.0)
"""The platform's own worker is the cheap one."""
ITEMS = 3000  # of each tenant: some seconds of one worker


@pytest.fixture
def clients(platform: Platform) -> Iterator[list[Client]]:
    """Clients of two tenants and of an operator."""
    url = platform.settings.database_url
    keys = [make_key_at(url, name)[0] for name in ("one", "two")]
    keys.append(make_key_at(url, "operators", role="admin")[0])
    with ExitStack() as stack:
        yield [stack.enter_context(Client(platform.url, api_key=key)) for key in keys]


@contextmanager
def dear_worker(platform: Platform) -> Iterator[str]:
    """A worker of the pool `dear`; yields its id once it is ready."""
    its = platform.settings.evolve(pool="dear", price=3.0, metrics_port=0)
    command = [sys.executable, "-m", "ops", "worker"]
    environ = os.environ | its.environment()
    with spawned(command, env=environ, start_new_session=True) as process:
        yield eventually(lambda: ready(platform, "dear"))
        process.terminate()
        process.wait()


def ready(platform: Platform, pool: str) -> str:
    """Id of the ready worker of a pool; empty: there is none."""
    query = text("SELECT incarnation FROM workers WHERE pool = :pool AND state = 'ready'")
    with transaction(platform) as tx:
        return str(tx.scalar(query, {"pool": pool}) or "")


def leaves(redis: "Redis", worker: str) -> bool:
    """Returns True once a worker reports that it leaves items to cheaper ones."""
    reports = reader.read(redis).by_process(worker).reports
    return any(report.details["models"]["batchstring@1"]["leaves_items"] for report in reports)


def ran(platform: Platform, job: str) -> dict[str, int]:
    """Items of a job that have ended, by worker."""
    query = text("""
        SELECT worker, sum(n_succeeded) FROM slices WHERE job_id = :job AND n_succeeded > 0
        GROUP BY worker
    """)
    with transaction(platform) as tx:
        return {str(row[0]): row[1] for row in tx.execute(query, {"job": ids.parse("job", job)})}


def test_a_dear_worker_leaves_jobs_to_the_cheap_one_and_takes_them_once_that_is_gone(
    platform: Platform, clients: list[Client], store: Redis
) -> None:
    *clients, admin = clients

    def words_of_why() -> str | None:
        found = {one["code"]: one["words"] for one in admin.get("/why")["diagnoses"]}
        return found.get("cheaper_workers")

    cheap = ready(platform, "default")
    with dear_worker(platform) as dear:
        eventually(lambda: leaves(store, dear))
        jobs = [client.jobs.submit("batchstring", ["a"] * ITEMS).id for client in clients]

        def ended() -> list[int]:
            return [sum(ran(platform, job).values()) for job in jobs]

        eventually(lambda: min(ended()) > 0)
        before = ended()
        eventually(lambda: sum(ended()) > sum(before) + ITEMS / 3)
        since = [after - earlier for after, earlier in zip(ended(), before, strict=True)]
        assert {worker for job in jobs for worker in ran(platform, job)} == {cheap}
        assert min(since) > 0.3 * sum(since)  # tenants share the cheap worker
        words = eventually(words_of_why)
        assert "wait for pool default, where an item costs 3" in words
        assert "of what it does in pool dear" in words
        child_of(platform).terminate()
        for client, job in zip(clients, jobs, strict=True):
            eventually(lambda client=client, job=job: completed(client, job))  # type: ignore[misc]
        assert {worker for job in jobs for worker in ran(platform, job)} == {cheap, dear}
