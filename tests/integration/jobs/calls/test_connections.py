"""How Redis is reached: scripts past the pool of redis-py, and every key of one on one node."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest
import redis
from redis import Redis
from redis.exceptions import ConnectionError

from jobs.calls.accounting.usage_fields import with_usage
from jobs.calls.clients.cluster import ClusterAddress
from jobs.calls.messages import Call
from jobs.calls.redis import RedisLanes, connect, declare_dead
from jobs.calls.streams.rollout import StreamReader, stream_key
from jobs.telemetry.reports import history, reader
from jobs.telemetry.reports.reports import ReportSet
from ops.embedded.servers import EmbeddedServers
from tests.integration.jobs.calls.made import MODEL, Lanes, enqueue, take
from tests.support.stores.redis_cluster import RedisCluster
from tests.support.wait import PATIENCE_S


def patient(url: str) -> Redis:
    """A client that a server may keep waiting."""
    return connect(url, timeout_s=PATIENCE_S)


@pytest.fixture
def client(servers: EmbeddedServers, redis_client: Redis) -> Iterator[Redis]:
    with closing(patient(servers.redis.url)) as made:
        yield made


def scripts_connections(client: Redis) -> int:
    name = client.client_info()["id"]
    return sum(one["cmd"] == "evalsha" and one["id"] != name for one in client.client_list())


def test_one_connection_is_used_again_and_again_by_each_thread(client: Redis) -> None:
    lanes = RedisLanes(client, MODEL)
    for _ in range(5):
        lanes.look("w/0")
    assert scripts_connections(client) == 1

    def look(_: int) -> None:
        for n in range(100):
            assert lanes.wanted() is False
            lanes.announce(f"w{n}", 0)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(look, range(4)))
    assert scripts_connections(client) <= 1 + 4


def test_connections_and_scripts_that_redis_ended_are_replaced(client: Redis) -> None:
    lanes = RedisLanes(client, MODEL)
    lanes.look("w/0")
    client.client_kill_filter(_type="normal", skipme=True)
    lanes.look("w/0")
    client.script_flush()
    lanes.look("w/0")


def test_an_error_of_a_script_leaves_its_connection_in_order(client: Redis) -> None:
    broken = client.register_script("return redis.call('no such command')")
    for _ in range(3):
        with pytest.raises(redis.ResponseError):
            broken()
    assert RedisLanes(client, MODEL).wanted() is False
    assert scripts_connections(client) == 1


# -- a Redis Cluster

MODELS = [f"model-{n}@1" for n in range(12)]


@pytest.mark.parametrize(
    ("url", "login", "hosts"),
    [
        ("redis+cluster://a", "", (("a", 6379),)),
        ("redis+cluster://u:p%40@a:1,[::1]:2/0", "u:p%40@", (("a", 1), ("::1", 2))),
        ("rediss+cluster://a:1,b:2?ssl_ca_certs=/ca", "", (("a", 1), ("b", 2))),
    ],
)
def test_an_address_names_nodes(url: str, login: str, hosts: tuple[tuple[str, int], ...]) -> None:
    address = ClusterAddress.parse(url)
    assert (address.login, address.hosts) == (login, hosts)
    assert address.node_url(*hosts[-1]).startswith(address.scheme + "://" + login)


@pytest.mark.parametrize("url", ["redis+cluster://", "redis+cluster://a/1", "redis+cluster://a,"])
def test_an_address_that_makes_no_sense_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="Redis Cluster"):
        connect(url)


def on(client: Redis, model: str) -> Lanes:
    """Lanes of a model with a call that waits."""
    lanes = RedisLanes(client, model)
    lanes.announce("worker-1", 60)
    made = Lanes(lanes, lambda asker: client.lrange(lanes.keys.replies(asker), 0, -1))
    made.put("a")
    return made


def test_models_are_on_all_nodes(redis_cluster: RedisCluster) -> None:
    client = patient(redis_cluster.url)
    for model in MODELS:
        made = on(client, model)
        assert made.take_ids() == ["a"]
        made.answer("a")
        assert made.answers() == [("a", "done", None)]
    counts = [redis_cluster.ask(port, "DBSIZE") for port in redis_cluster.ports]
    assert all(counts), counts
    assert sorted(with_usage(client)) == sorted(MODELS)


def test_calls_of_a_rollout_are_recorded_where_its_stream_is(redis_cluster: RedisCluster) -> None:
    client, lanes = patient(redis_cluster.url), RedisLanes(patient(redis_cluster.url), MODEL)
    for n in map(str, range(4)):
        lanes.announce(n, 60)
        enqueue(lanes, Call(n, "{}/64", "tenant", "x", 1, "api-1", cohort=f"canary#rollout-{n}"))
        assert [call.id for call in take(lanes, worker=n)] == [n]
        declare_dead(client, [MODEL], n)
        [died] = StreamReader(client, f"rollout-{n}").read()
        assert (died.lane, died.failed) == ("canary", 1)
    assert len({redis_cluster.port_of(stream_key(f"rollout-{n}")) for n in range(4)}) > 1


def test_commands_follow_a_slot_that_moves(redis_cluster: RedisCluster) -> None:
    client = patient(redis_cluster.url)
    made, lanes = on(client, MODEL), RedisLanes(client, MODEL)
    here = redis_cluster.port_of(lanes.keys("calls"))
    there = next(port for port in redis_cluster.ports if port != here)
    redis_cluster.move_slot(lanes.keys("calls"), there)
    try:
        assert made.take_ids() == ["a"]
        lanes.notify("worker-1/0")
        lanes.wait_for_wakeup("worker-1/0", 5)
    finally:
        redis_cluster.move_slot(lanes.keys("calls"), here)


def test_a_client_is_made_without_a_cluster_and_fails_as_redis_does() -> None:
    client = connect("redis+cluster://127.0.0.1:1", timeout_s=1)
    with closing(client), pytest.raises(ConnectionError, match="Redis Cluster"):
        RedisLanes(client, MODEL).announce("worker-1", 60)


def test_the_other_nodes_serve_when_one_is_away(redis_cluster: RedisCluster) -> None:
    client = patient(redis_cluster.url)
    lanes = {model: RedisLanes(client, model) for model in MODELS}
    for each in lanes.values():
        each.announce("worker-1", 60)
    lost = redis_cluster.ports[-1]
    gone = {m for m, each in lanes.items() if redis_cluster.port_of(each.keys("calls")) == lost}
    redis_cluster.kill(lost)
    try:
        for model, each in lanes.items():
            if model in gone:
                with pytest.raises(redis.RedisError):
                    each.look("nobody/0")
            else:
                assert each.look("nobody/0").replicas == 1
    finally:
        redis_cluster.start(lost)
    redis_cluster.wait()
    assert lanes[min(gone)].look("nobody/0").replicas == 0


def test_reports_and_history_have_nodes_of_their_own(
    redis_cluster: RedisCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "INTERVAL_S", 3600.0)
    client = patient(redis_cluster.url)
    assert history.write(client, ReportSet([]))
    assert not history.write(client, ReportSet([]))
    assert len(history.parse_points(client.lrange(history.KEY, 0, -1))) == 1
    assert reader.read(client).reports == []
    assert reader.remove_stale(client) == 0
