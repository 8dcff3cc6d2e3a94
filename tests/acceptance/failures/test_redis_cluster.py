"""A platform whose calls are on a Redis Cluster; nudges go through a Redis of their own."""

from collections.abc import Iterator

import httpx
import pytest

from jobs.calls.keys import Keys
from millrace import Client
from ops.bench.harness.models_files import models_file, sample
from ops.embedded.servers import EmbeddedServers
from ops.supervisor.platform import Platform
from tests.support.children import kill
from tests.support.pace import pace
from tests.support.platforms import Platforms, spec
from tests.support.stores.redis_cluster import RedisCluster
from tests.support.wait import eventually

pytestmark = pytest.mark.nightly

COPIES = 6  # of one model: some on each node
MODELS = models_file(*(sample("echo", name=f"echo-{n}") for n in range(COPIES)))


@pytest.fixture(scope="module")
def platform(
    platforms: Platforms, redis_nodes: RedisCluster, servers: EmbeddedServers
) -> Iterator[Platform]:
    address = {"redis_url": redis_nodes.url, "broker_url": servers.redis.url}
    with platforms.running(spec(MODELS, lease_s=3.0 * pace()), **address) as running:
        yield running


def calls(client: Client) -> list[object]:
    return [client.infer(f"echo-{n}", f"input {n}")["output"] for n in range(COPIES)]


EXPECTED = [f"input {n}" for n in range(COPIES)]


def test_calls_and_jobs_of_models_on_all_nodes(client: Client, redis_nodes: RedisCluster) -> None:
    ports = {redis_nodes.port_of(Keys(f"echo-{n}@1")("calls")) for n in range(COPIES)}
    assert len(ports) > 1
    assert calls(client) == EXPECTED
    job = client.jobs.submit("echo-1", ["a", "b"]).id
    assert client.jobs.wait(job)["counts"]["succeeded"] == 2


def test_a_call_is_recorded_and_its_key_is_kept(platform: Platform) -> None:
    asked = {"model": "echo-2", "input": "once"}
    headers = {"Idempotency-Key": '"cluster"'}
    first, again = (
        httpx.post(f"{platform.url}/infer", json=asked, headers=headers) for _ in range(2)
    )
    assert (first.status_code, again.content) == (200, first.content)
    id = first.json()["id"]
    eventually(lambda: httpx.get(f"{platform.url}/calls/{id}").is_success)


def test_calls_of_a_dead_worker_run_again(platform: Platform, client: Client) -> None:
    kill(platform)
    eventually(lambda: _all_answered(platform))


def test_a_node_that_dies_takes_its_own_models_alone(
    platform: Platform, client: Client, redis_nodes: RedisCluster
) -> None:
    eventually(lambda: _all_answered(platform))
    ports = {n: redis_nodes.port_of(Keys(f"echo-{n}@1")("calls")) for n in range(COPIES)}
    lost = ports[0]
    redis_nodes.kill(lost)
    try:
        others = [n for n in range(COPIES) if ports[n] != lost]
        for n in others:
            eventually(lambda: _answered(platform, n))  # noqa: B023
        assert not _answered(platform, 0)
        job = client.jobs.submit("echo-0", ["a"]).id
        assert client.jobs.wait(job)["counts"]["succeeded"] == 1
    finally:
        redis_nodes.start(lost)
    redis_nodes.wait()
    eventually(lambda: _all_answered(platform))


def _all_answered(platform: Platform) -> bool:
    platform.poll()  # starts a worker that has ended
    return all(_answered(platform, n) for n in range(COPIES))


def _answered(platform: Platform, n: int) -> bool:
    asked = {"model": f"echo-{n}", "input": "x", "timeout_ms": 2000}
    return httpx.post(f"{platform.url}/infer", json=asked, timeout=30).is_success
