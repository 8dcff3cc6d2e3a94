"""Lanes on a Redis Cluster: every script's keys in one slot, whichever node has it."""

import pytest
import redis
from redis.exceptions import ConnectionError

from jobs.calls.accounting.usage_fields import with_usage
from jobs.calls.cluster import ClusterAddress
from jobs.calls.lanes import Terms
from jobs.calls.messages import Call
from jobs.calls.redis import RedisLanes, connect, declare_dead
from jobs.calls.streams.rollout import StreamReader, stream_key
from jobs.telemetry.reports import history, reader
from jobs.telemetry.reports.reports import ReportSet
from tests.integration.jobs.calls.made import MODEL, Lanes, ticket
from tests.support.stores.redis_cluster import RedisCluster

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


def test_models_are_on_all_nodes(redis_cluster: RedisCluster) -> None:
    client = connect(redis_cluster.url)
    for model in MODELS:
        lanes = RedisLanes(client, model)
        lanes.announce("worker-1", 60)
        made = Lanes(lanes, lambda asker, at=lanes: client.lrange(at.keys.replies(asker), 0, -1))
        made.put("a")
        assert made.take_ids() == ["a"]
        made.answer("a")
        assert made.answers() == [("a", "done", None)]
    counts = [redis_cluster.ask(port, "DBSIZE") for port in redis_cluster.ports]
    assert all(counts), counts
    assert sorted(with_usage(client)) == sorted(MODELS)


def test_calls_of_a_rollout_are_recorded_where_its_stream_is(redis_cluster: RedisCluster) -> None:
    client, lanes = connect(redis_cluster.url), RedisLanes(connect(redis_cluster.url), MODEL)
    for n in range(4):
        lanes.announce(f"{n}", 60)
        call = Call(f"{n}", "{}/64", "tenant", "x", 1, "api-1", cohort=f"canary#rollout-{n}")
        assert not lanes.put(call, target_ms=250, timeout_ms=60_000, most=9, terms=Terms())
        taken = lanes.take(ticket(lanes.look("s"), worker=f"{n}"))
        assert taken
        assert taken[0].id == f"{n}"
        declare_dead(client, [MODEL], f"{n}")
        [died] = StreamReader(client, f"rollout-{n}").read()
        assert (died.lane, died.failed) == ("canary", 1)
    assert len({redis_cluster.port_of(stream_key(f"rollout-{n}")) for n in range(4)}) > 1


def test_commands_follow_a_slot_that_moves(redis_cluster: RedisCluster) -> None:
    client = connect(redis_cluster.url)
    lanes = RedisLanes(client, MODEL)
    lanes.announce("worker-1", 60)
    made = Lanes(lanes, lambda asker: client.lrange(lanes.keys.replies(asker), 0, -1))
    made.put("a")
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
    with pytest.raises(ConnectionError, match="Redis Cluster"):
        RedisLanes(client, MODEL).announce("worker-1", 60)
    client.close()


def test_the_other_nodes_serve_when_one_is_away(redis_cluster: RedisCluster) -> None:
    client = connect(redis_cluster.url, timeout_s=1)
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


def test_reports_and_history_have_nodes_of_their_own(redis_cluster: RedisCluster) -> None:
    client = connect(redis_cluster.url)
    assert history.write(client, ReportSet([]))
    assert not history.write(client, ReportSet([]))
    assert len(history.parse_points(client.lrange(history.KEY, 0, -1))) == 1
    assert reader.read(client).reports == []
    assert reader.remove_stale(client) == 0
