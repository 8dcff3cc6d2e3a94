"""Usage is billed once, to the last item and call, though workers are killed; caps hold.
Real processes, as `millrace up` starts them."""

import csv
import json
import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from typing import Any

import httpx
import pytest
import redis
from sqlalchemy import Engine, text
from standardwebhooks import Webhook

from jobs import clock, ids
from jobs.calls.redis import RedisLanes
from jobs.store import db, invariants
from millrace import Client
from ops.supervisor.platform import Platform
from tests.support.command_line import run_millrace
from tests.support.platforms import spec
from tests.support.servers.receiver import receiving
from tests.support.wait import eventually

pytestmark = pytest.mark.nightly

MODELS = """
[[model]]
name = "priced"
version = "1"
engine = "function"
target_ms = 60_000
options = { function = "workers.engines.samples:batchstring" }
limits = { max_batch = 50, slice_items = 200 }
[model.price]
per_item = 0.01
per_1k_units = 0.5
class = { interactive = 2 }
"""
ITEMS = 3000
CALLS = 150


PLATFORM = spec(MODELS, workers=2, lease_s=2.0, webhook_allow="127.0.0.1")


@pytest.fixture(scope="module")
def http(platform: Platform) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=platform.url) as made:
        yield made


@pytest.fixture(scope="module")
def database(platform: Platform) -> Iterator[Engine]:
    engine = db.connect(platform.settings.database_url, pool_size=2)
    yield engine
    engine.dispose()


def until(platform: Platform, look: Any) -> None:
    """Waits, and starts workers that ended again, as `millrace up` does."""
    eventually(lambda: (platform.poll(), look())[1])


def kill_a_worker(platform: Platform) -> None:
    children = {child.name: child for child in platform.supervisor.children}
    pid = children["worker-1"].pid
    assert pid
    os.kill(pid, signal.SIGKILL)


def ledger(database: Engine, kind: str) -> tuple[Any, ...]:
    query = """
        SELECT coalesce(sum(succeeded), 0), coalesce(sum(failed), 0), coalesce(sum(units), 0),
               coalesce(sum(device_us), 0), coalesce(sum(amount), 0)
        FROM usage WHERE kind = :kind
    """
    with database.connect() as tx:
        return tuple(tx.execute(text(query), {"kind": kind}).one())


def all_holds(database: Engine) -> None:
    with invariants.snapshot(database) as tx:
        for one in invariants.INVARIANTS:
            assert not invariants.violations(tx, one), one.name


def usage(http: httpx.Client, **query: str) -> Any:
    answer = http.get("/usage", params=query)
    assert answer.status_code == 200
    return answer.json()


def test_a_job_whose_worker_is_killed_is_billed_for_its_results(
    platform: Platform, client: Client, http: httpx.Client, database: Engine
) -> None:
    job = client.jobs.submit("priced", (b'"item"\n' for _ in range(ITEMS)))["id"]
    eventually(lambda: client.jobs.get(job)["counts"]["succeeded"])
    kill_a_worker(platform)
    assert client.jobs.get(job)["counts"]["succeeded"] < ITEMS
    until(platform, lambda: client.jobs.get(job)["state"] == "completed")
    with database.connect() as tx:
        query = "SELECT count(*), sum(units), sum(device_us) FROM results WHERE job_id = :job"
        items, units, device_us = tx.execute(text(query), {"job": ids.parse("job", job)}).one()
    amount = Decimal("0.01") * ITEMS + Decimal("0.0005") * units
    assert ledger(database, "items") == (ITEMS, 0, units, device_us, amount)
    assert (items, units) == (ITEMS, 4 * ITEMS)
    assert device_us > 0
    all_holds(database)
    [group] = usage(http, by="model,kind")["data"]
    assert (group["model"], group["kind"], group["succeeded"]) == ("priced", "items", ITEMS)
    assert (group["units"], group["amount"]) == ({"characters": 4 * ITEMS}, "36")


def answered(platform: Platform, database: Engine) -> int:
    """Calls that are counted, wherever they are now."""
    with redis.Redis.from_url(platform.settings.redis_url) as client:
        used = RedisLanes(client, "priced@1").usage(unfinished=True)
    moved: int = ledger(database, "calls")[0]
    return moved + sum(one.succeeded for one in used)


def age(platform: Platform) -> None:
    """Moves what was counted to a minute that is long over."""
    with redis.Redis.from_url(platform.settings.redis_url) as client:
        key = RedisLanes(client, "priced@1").keys("used")
        for field, count in client.hgetall(key).items():  # type: ignore[union-attr]
            minute, _, rest = field.partition(b" ")
            client.hdel(key, field)
            client.hincrby(key, b"%d %b" % (int(minute) - 5, rest), int(count))


def test_calls_are_billed_once_each_though_a_worker_is_killed(
    platform: Platform, http: httpx.Client, database: Engine
) -> None:
    def call(n: int) -> int:
        body = {"model": "priced", "input": "four", "class": "interactive", "timeout_ms": 60_000}
        return http.post("/infer", json=body).status_code

    with ThreadPoolExecutor(60) as callers:
        calls = [callers.submit(call, n) for n in range(CALLS)]
        eventually(lambda: answered(platform, database) > 20)
        kill_a_worker(platform)
        until(platform, lambda: all(call.done() for call in calls))
    good = sum(call.result() == 200 for call in calls)
    assert good > CALLS / 2
    eventually(lambda: answered(platform, database) == good)
    age(platform)
    eventually(lambda: ledger(database, "calls")[0] == good)
    price = 2 * (Decimal("0.01") + 4 * Decimal("0.0005"))
    succeeded, _, units, device_us, amount = ledger(database, "calls")
    assert (succeeded, units, amount) == (good, 4 * good, price * good)
    assert device_us > 0
    all_holds(database)
    found = usage(http, by="kind,class")
    sums = {(group["kind"], group["class"]): group["succeeded"] for group in found["data"]}
    assert sums == {("items", "standard"): ITEMS, ("calls", "interactive"): good}
    assert Decimal(found["total"]["amount"]) == 36 + amount


def test_usage_comes_as_csv_too_and_on_the_command_line(
    platform: Platform, http: httpx.Client
) -> None:
    json_ = usage(http, by="day,kind")
    answer = http.get("/usage", params={"by": "day,kind"}, headers={"Accept": "text/csv"})
    assert answer.headers["content-type"].startswith("text/csv")
    rows = list(csv.DictReader(answer.text.splitlines()))
    assert [(row["day"], row["kind"], row["succeeded"], row["amount"]) for row in rows] == [
        (group["day"], group["kind"], str(group["succeeded"]), group["amount"])
        for group in json_["data"]
    ]
    assert all(int(row["characters"]) > 0 for row in rows)

    def run(*options: str) -> str:
        return run_millrace("usage", "--url", platform.url, *options).stdout

    assert list(csv.DictReader(run("--by", "day,kind", "--csv").splitlines())) == rows
    assert json.loads(run("--by", "day,kind", "--json")) == json_
    assert f"total  {json_['total']['succeeded']:,} succeeded" in run()
    assert json.loads(run("--from", "2020-01-01", "--to", "2020-02-01", "--json"))["data"] == []


@pytest.mark.parametrize(
    "query", [{"by": "colour"}, {"from": "soon"}, {"tenant": "a b"}, {"format": "xml"}]
)
def test_a_question_that_makes_no_sense_is_refused(
    http: httpx.Client, query: dict[str, str]
) -> None:
    answer = http.get("/usage", params=query)
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid")


def test_an_operator_asks_for_others(http: httpx.Client) -> None:
    assert [row["tenant"] for row in usage(http, by="tenant", tenant="*")["data"]] == ["default"]
    assert usage(http, by="tenant")["data"] == usage(http, by="tenant", tenant="*")["data"]
    assert usage(http, by="tenant", tenant="acme")["data"] == []


def test_the_endpoint_is_told_when_the_soft_cap_is_passed(http: httpx.Client) -> None:
    secret = http.post("/webhooks/secret").json()["secret"]
    assert http.put("/tenants/default", json={"soft_cap": 40}).status_code == 200
    with receiving() as receiver:
        put = http.put("/webhooks/endpoint", json={"url": receiver.url})
        assert (put.status_code, put.json()["url"]) == (200, receiver.url)
        eventually(lambda: receiver.received)
        [told] = receiver.received
        message = Webhook(secret).verify(told.body, told.headers)
        assert message["type"] == "usage.threshold"
        data = message["data"]
        assert (data["soft_cap"], data["hard_cap"]) == ("40", None)
        assert data["percent"] == (100 if Decimal(data["amount"]) >= 40 else 80)
        assert data["month"] == f"{clock.now():%Y-%m}"

        def delivered() -> bool:
            found = http.get("/webhooks/endpoint").json()["deliveries"]
            return [row["state"] for row in found] == ["delivered"]

        eventually(delivered)
    assert http.put("/webhooks/endpoint", json={"url": None}).json()["url"] is None
    refused = http.put("/webhooks/endpoint", json={"url": "http://10.0.0.1/"})
    assert (refused.status_code, refused.json()["errors"][0]["loc"]) == (422, ["body", "url"])


def test_at_the_hard_cap_jobs_and_calls_are_refused_and_what_was_accepted_goes_on(
    http: httpx.Client,
) -> None:
    job = {"model": "priced", "items": ["x"] * 1000}
    accepted = http.post("/jobs", json=job).json()["id"]
    assert http.put("/tenants/default", json={"hard_cap": 30}).status_code == 200
    refused = http.post("/jobs", json=job)
    assert (refused.status_code, refused.json()["code"]) == (429, "spend_cap")
    assert int(refused.headers["retry-after"]) >= 1
    body = {"model": "priced", "input": "x", "timeout_ms": 60_000}
    eventually(lambda: http.post("/infer", json=body).status_code == 429)
    assert http.post("/infer", json=body).json()["code"] == "spend_cap"
    eventually(lambda: http.get(f"/jobs/{accepted}").json()["state"] == "completed")
    assert http.put("/tenants/default", json={}).status_code == 200
    eventually(lambda: http.post("/infer", json=body).status_code == 200)
    assert http.post("/jobs", json=job).status_code == 202
