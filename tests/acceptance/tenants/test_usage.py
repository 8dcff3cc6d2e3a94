"""Usage is billed once, to the last item, call and token, though workers are killed and streams are
broken off; caps hold. Real processes, as `millrace up` starts them."""

import csv
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import Any

import httpx
import pytest
import redis
from sqlalchemy import Engine, text
from standardwebhooks import Webhook

from jobs import clock, ids
from jobs.calls.redis import RedisLanes
from millrace import Client
from ops.supervisor.platform import Platform
from tests.support.cases import each
from tests.support.children import kill, until
from tests.support.clients import bearer, chat, infer
from tests.support.command_line import run_millrace
from tests.support.jobs import assert_invariants, begun, completed, finish
from tests.support.keys import make_key_at
from tests.support.models.entries import function, model
from tests.support.pace import lease_s
from tests.support.platforms import spec
from tests.support.servers.receiver import receiving
from tests.support.stores.transactions import fetch
from tests.support.wait import eventually

pytestmark = pytest.mark.nightly

PRICE = {"per_item": 0.01, "per_1k_units": 0.5, "class": {"interactive": 2}}
PER_TOKEN = {"per_1k_input_tokens": 2, "per_1k_cached_tokens": 1, "per_1k_output_tokens": 10}
LIMITS = {"max_batch": 50, "slice_items": 200}
SHOUT = "workers.engines.samples:batchstring"
MODELS = function(SHOUT, "priced", target_ms=60000, limits=LIMITS, price=PRICE) + model(
    "talk",
    "echo_chat",
    target_ttft_ms=60000,
    limits={"slice_items": 20},
    price=PER_TOKEN,
    step_ms=5,
)
ITEMS, CALLS = 12_000, 150
CHATS, CHAT_ITEMS, CUT = 40, 200, 8
PLATFORM = spec(MODELS, workers=2, lease_s=lease_s(2.0), is_closed=True, webhook_allow="127.0.0.1")
TOKENS = ("input_tokens", "cached_tokens", "output_tokens")
COLUMNS = ("succeeded", "failed", "units", "device_us", "amount", *TOKENS)


@dataclass(frozen=True)
class Payer:
    """A tenant of a test's own, with its clients; what others use doesn't count here."""

    tenant: str
    http: httpx.Client
    client: Client
    admin: httpx.Client

    def works(self, items: int = 3000) -> str:
        """Runs a job; every thousand items cost 12."""
        job = self.client.jobs.submit("priced", ["item"] * items).id
        self.client.jobs.wait(job)
        return job

    def caps(self, **caps: int) -> None:
        self.admin.put(f"/tenants/{self.tenant}", json=caps).raise_for_status()


@pytest.fixture
def payer(
    platform: Platform, admin: httpx.Client, request: pytest.FixtureRequest
) -> Iterator[Payer]:
    tenant = request.node.name.partition("[")[0][:60].replace("_", "-")
    key, _ = make_key_at(platform.settings.database_url, tenant)
    with (
        httpx.Client(base_url=platform.url, headers=bearer(key)) as http,
        closing(Client(platform.url, key)) as client,
    ):
        yield Payer(tenant, http, client, admin)


def ledger(database: Engine, payer: Payer, kind: str) -> dict[str, Any]:
    sums = ", ".join(f"coalesce(sum({name}), 0)" for name in COLUMNS)
    query = f"SELECT {sums} FROM usage WHERE kind = :kind AND tenant_id = :tenant"
    [row] = fetch(database, query, {"kind": kind, "tenant": payer.tenant})
    return dict(zip(COLUMNS, row, strict=True))


def usage(http: httpx.Client, **query: str) -> Any:
    answer = http.get("/usage", params=query)
    assert answer.status_code == 200
    return answer.json()


def test_a_job_whose_worker_is_killed_is_billed_for_its_results(
    platform: Platform, payer: Payer, database: Engine
) -> None:
    client = payer.client
    job = client.jobs.submit("priced", ["item"] * ITEMS).id
    eventually(lambda: begun(client, job))
    kill(platform)
    assert client.jobs.get(job)["counts"]["succeeded"] < ITEMS
    until(platform, lambda: completed(client, job))
    with database.connect() as tx:
        query = "SELECT count(*), sum(units), sum(device_us) FROM results WHERE job_id = :job"
        items, units, device_us = tx.execute(text(query), {"job": ids.parse("job", job)}).one()
    amount = Decimal("0.01") * ITEMS + Decimal("0.0005") * units
    billed = ledger(database, payer, "items")
    assert [billed[name] for name in COLUMNS[:5]] == [ITEMS, 0, units, device_us, amount]
    assert (items, units) == (ITEMS, 4 * ITEMS)
    assert device_us > 0
    assert_invariants(platform)
    [group] = usage(payer.http, by="model,kind")["data"]
    assert (group["model"], group["kind"], group["succeeded"]) == ("priced", "items", ITEMS)
    assert (group["units"], group["amount"]) == ({"characters": 4 * ITEMS}, "144")


def counted(store: "redis.Redis", database: Engine, payer: Payer, model: str) -> dict[str, int]:
    """Tokens and ended calls of a tenant, wherever they are now."""
    sums = ledger(database, payer, "calls")
    for one in RedisLanes(store, model).usage(unfinished=True):
        if one.tenant == payer.tenant:
            for name in ("succeeded", "failed", *TOKENS):
                sums[name] += getattr(one, name)
    return sums


def age(store: "redis.Redis") -> None:
    """Moves what was counted to a minute that is long over."""
    key = RedisLanes(store, "priced@1").keys("used")
    for field, count in store.hgetall(key).items():  # type: ignore[union-attr]
        minute, _, rest = field.partition(b" ")
        store.hdel(key, field)
        store.hincrby(key, b"%d %b" % (int(minute) - 5, rest), int(count))


def test_calls_are_billed_once_each_though_a_worker_is_killed(
    platform: Platform, store: "redis.Redis", payer: Payer, database: Engine
) -> None:
    terms = {"class": "interactive", "timeout_ms": 60_000}

    def answered() -> int:
        return counted(store, database, payer, "priced@1")["succeeded"]

    with ThreadPoolExecutor(60) as callers:
        calls = [callers.submit(infer, payer.http, "priced", "four", **terms) for _ in range(CALLS)]
        eventually(lambda: answered() > 20)
        kill(platform)
        until(platform, lambda: all(call.done() for call in calls))
    good = sum(call.result().is_success for call in calls)
    assert good > CALLS / 2
    eventually(lambda: answered() == good)
    age(store)
    eventually(lambda: ledger(database, payer, "calls")["succeeded"] == good)
    amount = 2 * (Decimal("0.01") + 4 * Decimal("0.0005")) * good
    billed = ledger(database, payer, "calls")
    assert (billed["succeeded"], billed["units"], billed["amount"]) == (good, 4 * good, amount)
    assert billed["device_us"] > 0
    assert_invariants(platform)
    found = usage(payer.http, by="kind,class")
    sums = {(group["kind"], group["class"]): group["succeeded"] for group in found["data"]}
    assert sums == {("calls", "interactive"): good}
    assert Decimal(found["total"]["amount"]) == amount


def complete(http: httpx.Client, n: int) -> dict[str, int]:
    body = {"model": "talk", **chat(f"call number {n}"), "timeout_ms": 60_000}
    answer = http.post("/v1/chat/completions", json=body).raise_for_status()
    return dict(answer.json()["usage"])


def cut(http: httpx.Client, n: int) -> None:
    """Reads the beginning of a stream, and leaves."""
    endless = chat(f"go on and on {n}", min_tokens=8000, max_tokens=8000)
    body = {"model": "talk", **endless, "stream": True}
    with http.stream("POST", "/v1/chat/completions", json=body) as stream:
        assert stream.status_code == 200, stream.read()
        next(line for line in stream.iter_lines() if '"content":"' in line)


def test_calls_that_generate_and_broken_streams_are_counted_once(
    store: "redis.Redis", payer: Payer, database: Engine
) -> None:
    with ThreadPoolExecutor(16) as pool:
        cuts = [pool.submit(cut, payer.http, n) for n in range(CUT)]
        usages = list(pool.map(lambda n: complete(payer.http, n), range(CHATS)))
        for one in cuts:
            one.result()
    eventually(lambda: counted(store, database, payer, "talk@1")["succeeded"] == CHATS)
    eventually(lambda: counted(store, database, payer, "talk@1")["failed"] == CUT)
    sums = counted(store, database, payer, "talk@1")
    output = sum(usage["completion_tokens"] for usage in usages)
    assert output < sums["output_tokens"] < output + CUT * 8000  # until each left
    assert sums["input_tokens"] > sum(usage["prompt_tokens"] for usage in usages)


def test_a_job_that_generates_is_billed_for_the_tokens_of_its_results(
    platform: Platform, payer: Payer, database: Engine
) -> None:
    job = payer.client.jobs.submit(
        "talk", [chat(f"item {n} " + "and more " * 30) for n in range(CHAT_ITEMS)]
    ).id
    eventually(lambda: begun(payer.client, job))
    kill(platform)
    usages = [result.output["usage"] for result in finish(platform, payer.client, job)]
    billed = ledger(database, payer, "items")
    tokens = {
        "input_tokens": sum(usage["prompt_tokens"] for usage in usages),
        "cached_tokens": sum(one["prompt_tokens_details"]["cached_tokens"] for one in usages),
        "output_tokens": sum(usage["completion_tokens"] for usage in usages),
    }
    assert billed.items() >= (tokens | {"succeeded": CHAT_ITEMS, "failed": 0}).items()
    assert_invariants(platform)
    [group] = usage(payer.http, by="kind")["data"]
    assert group["tokens"] == {name.removesuffix("_tokens"): n for name, n in tokens.items()}
    fresh = tokens["input_tokens"] - tokens["cached_tokens"]
    price = 2 * fresh + tokens["cached_tokens"] + 10 * tokens["output_tokens"]
    assert Decimal(group["amount"]) == Decimal(price) / 1000


def test_usage_comes_as_csv_too_and_on_the_command_line(platform: Platform, payer: Payer) -> None:
    http, key = payer.http, payer.http.headers["Authorization"].removeprefix("Bearer ")
    payer.works(20)
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
        environ = {"MILLRACE_URL": platform.url, "MILLRACE_API_KEY": key}
        return run_millrace("usage", *options, **environ).stdout

    assert list(csv.DictReader(run("--by", "day,kind", "--csv").splitlines())) == rows
    assert json.loads(run("--by", "day,kind", "--json")) == json_
    assert f"total  {json_['total']['succeeded']:,} succeeded" in run()
    assert json.loads(run("--from", "2020-01-01", "--to", "2020-02-01", "--json"))["data"] == []


def test_a_question_that_makes_no_sense_is_refused(payer: Payer) -> None:
    for query, case in each(["by=colour", "from=soon", "tenant=a+b", "format=xml"]):
        with case:
            answer = payer.http.get(f"/usage?{query}")
            assert (answer.status_code, answer.json()["code"]) == (422, "invalid")


def test_an_operator_asks_for_others(payer: Payer) -> None:
    payer.works(20)
    mine = usage(payer.http, by="tenant")["data"]
    assert [row["tenant"] for row in mine] == [payer.tenant]
    assert usage(payer.admin, by="tenant", tenant=payer.tenant)["data"] == mine
    assert mine[0] in usage(payer.admin, by="tenant", tenant="*")["data"]
    assert usage(payer.admin, by="tenant", tenant="nobody")["data"] == []


def test_the_endpoint_is_told_when_the_soft_cap_is_passed(payer: Payer) -> None:
    http = payer.http
    payer.works()
    secret = http.post("/webhooks/secret").json()["secret"]
    payer.caps(soft_cap=40)  # of which 36 are spent
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
    payer: Payer,
) -> None:
    http = payer.http
    payer.works()
    job = {"model": "priced", "items": ["x"] * 1000}
    accepted = http.post("/jobs", json=job).json()["id"]
    payer.caps(hard_cap=30)
    refused = http.post("/jobs", json=job)
    assert (refused.status_code, refused.json()["code"]) == (429, "spend_cap")
    assert int(refused.headers["retry-after"]) >= 1
    call = partial(infer, http, "priced", "x", timeout_ms=60_000)
    eventually(lambda: call().status_code == 429)
    assert call().json()["code"] == "spend_cap"
    eventually(lambda: http.get(f"/jobs/{accepted}").json()["state"] == "completed")
    payer.caps()
    eventually(lambda: call().status_code == 200)
    assert http.post("/jobs", json=job).status_code == 202
