"""Tenants beside one another: what is over a quota is refused with when to come again, a flood is
nobody else's trouble, and who shares a launch is told of nobody."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from time import monotonic
from typing import Any

import httpx
import pytest

from millrace import Client
from ops.supervisor.platform import Platform
from tests.support.clients import bearer, http_of, infer, repeated
from tests.support.command_line import run_millrace
from tests.support.jobs import completed
from tests.support.keys import make_key_at
from tests.support.models.entries import function
from tests.support.platforms import CLOSED
from tests.support.wait import eventually, pause

LIMITS = {"max_batch": 4, "in_flight": 1}
MODELS = function("workers.engines.samples:batchstring", name="slow", target_ms=1000, limits=LIMITS)
PLATFORM = CLOSED


class Tenant:
    def __init__(self, admin: httpx.Client, name: str) -> None:
        self.name, self._admin = name, admin
        made = admin.post("/keys", json={"tenant": name}).json()
        self.key, self.key_id = made["key"], made["id"]
        self.http = httpx.Client(base_url=admin.base_url, headers=bearer(self.key))

    def limit(self, *limits: dict[str, Any]) -> None:
        """Sets limits, and waits until they are known."""
        path = f"/tenants/{self.name}/limits"
        put = self._admin.put(path, json={"data": list(limits)})
        assert put.status_code == 200, put.text
        assert put.json() == self._admin.get(path).json()

    def infer(self, model: str = "echo", text: str = "x", key: str = "") -> httpx.Response:
        body = {"model": model, "input": text, "timeout_ms": 5000}
        headers = {"Idempotency-Key": f'"{key}"'} if key else {}
        return self.http.post("/infer", json=body, headers=headers)

    def submit(self, *items: str, model: str = "slow") -> httpx.Response:
        return self.http.post("/jobs", json={"model": model, "items": list(items)})


@pytest.fixture
def tenant(admin: httpx.Client, request: pytest.FixtureRequest) -> Iterator[Tenant]:
    made = Tenant(admin, request.node.name.partition("[")[0][:80].replace("_", "-"))
    yield made
    made.http.close()


def is_refused(response: httpx.Response, name: str) -> dict[str, Any]:
    assert response.status_code == 429, response.text
    problem: dict[str, Any] = response.json()
    assert problem["code"] == "quota_exceeded"
    assert problem["limit"]["name"] == name
    return problem


def until_refused(tenant: Tenant, **asked: str) -> httpx.Response:
    return next(a for _ in range(1000) if (a := tenant.infer(**asked)).status_code != 200)


def test_requests_over_the_rate_are_refused_with_what_it_is_and_when_to_come_again(
    tenant: Tenant,
) -> None:
    tenant.limit({"requests_per_s": 2})  # fewer than a busy machine asks
    eventually(lambda: "RateLimit" in tenant.infer().headers)
    good = tenant.infer()
    if good.status_code == 200:
        assert good.headers["RateLimit-Policy"] == '"requests";q=2;w=1'
        assert good.headers["RateLimit"].startswith('"requests";r=')
    refused = until_refused(tenant)
    problem = is_refused(refused, "requests_per_s")
    assert (problem["limit"]["value"], problem["limit"]["of"]) == (2.0, "tenant")
    assert (problem["limit"]["model"], problem["retryable"]) == (None, True)
    assert refused.headers["RateLimit-Policy"] == '"requests";q=2;w=1'
    assert refused.headers["RateLimit"] == '"requests";r=0;t=1'
    assert int(refused.headers["Retry-After"]) >= 1
    assert 0 < int(refused.headers["Retry-After-Ms"]) <= 625


@pytest.mark.parametrize("limit", [{"requests_per_s": 1}, {"tokens_per_s": 20}], ids=str)
def test_who_waits_as_long_as_it_was_told_is_let_in(
    tenant: Tenant, limit: dict[str, float]
) -> None:
    tenant.limit(limit)
    eventually(lambda: "RateLimit" in tenant.infer().headers)
    for _ in range(4):
        refused = until_refused(tenant, text="x" * 15)
        pause(int(refused.headers["Retry-After-Ms"]) / 1000)  # what a client would do
        assert tenant.infer(text="x" * 15).status_code == 200


def test_a_limit_is_changed_while_calls_come(tenant: Tenant) -> None:
    tenant.limit({"model": "echo", "requests_per_s": 0.01})
    eventually(lambda: tenant.infer().status_code == 429)
    assert tenant.infer("slow").json().get("code") != "quota_exceeded"
    tenant.limit({"model": "echo", "requests_per_s": 1000})
    eventually(lambda: tenant.infer().status_code == 200)
    tenant.limit()
    eventually(lambda: "RateLimit" not in tenant.infer().headers)


def test_a_key_has_a_limit_of_its_own(tenant: Tenant, admin: httpx.Client) -> None:
    other = Tenant(admin, tenant.name)
    tenant.limit({"key": tenant.key_id, "requests_per_s": 0.01})
    eventually(lambda: tenant.infer().status_code == 429)
    refused = tenant.infer()
    assert is_refused(refused, "requests_per_s")["limit"]["of"] == "key"
    assert refused.headers["RateLimit-Policy"] == '"key-requests";q=1;w=100'
    assert [other.infer().status_code for _ in range(3)] == [200] * 3
    other.http.close()


def test_replays_are_not_charged_for_tokens(tenant: Tenant) -> None:
    tenant.limit({"tokens_per_s": 0.01})
    eventually(lambda: tenant.infer().status_code == 429)
    tenant.limit({"tokens_per_s": 0.02})
    eventually(lambda: tenant.infer(key="one").status_code == 200)
    again = [tenant.infer(key="one") for _ in range(3)]
    assert [answer.headers.get("Idempotency-Replayed") for answer in again] == ["true"] * 3
    assert tenant.infer(key="two").status_code == 429


def test_calls_in_flight_are_bounded(tenant: Tenant) -> None:
    tenant.limit({"calls_in_flight": 3})
    path = f"/tenants/{tenant.name}/limits"
    assert tenant.http.get(path).json()["data"][0]["calls_in_flight"] == 3
    eventually(lambda: "RateLimit-Policy" in tenant.infer("slow").headers)

    def refused_beside_three() -> list[httpx.Response]:
        """Refusals of twelve calls at once; none while a busy machine predicts late answers."""
        with ThreadPoolExecutor(12) as threads:
            answers = list(threads.map(lambda _: tenant.infer("slow"), range(12)))
        limited = [one for one in answers if one.json().get("code") == "quota_exceeded"]
        return limited if sum(answer.is_success for answer in answers) >= 3 else []

    for answer in eventually(refused_beside_three):
        is_refused(answer, "calls_in_flight")
        assert answer.headers["RateLimit-Policy"] == '"calls";q=3;qu="concurrent-requests"'
        assert answer.headers["RateLimit"] == '"calls";r=0'
    eventually(lambda: tenant.infer("slow").status_code == 200)


def test_every_authenticated_request_counts(tenant: Tenant) -> None:
    job = tenant.submit("a", model="echo").json()["id"]
    tenant.limit({"requests_per_s": 0.001})
    eventually(lambda: tenant.http.get("/jobs").status_code == 429)
    is_refused(tenant.submit("a"), "requests_per_s")
    of_job = [f"/jobs/{job}{path}" for path in ("", "/results", "/events")]
    for path in ("/jobs", *of_job, "/models", "/keys"):  # it may not see keys
        is_refused(tenant.http.get(path), "requests_per_s")
    is_refused(tenant.http.post(f"/jobs/{job}/cancel"), "requests_per_s")
    for path in ("/v1/models", "/dashboard/jobs"):
        assert tenant.http.get(path).status_code == 429
    assert tenant.http.get("/livez").status_code == 200
    tenant.limit()
    eventually(lambda: tenant.http.get("/jobs").status_code == 200)


def test_a_call_is_one_request(tenant: Tenant) -> None:
    tenant.limit({"requests_per_s": 0.001})
    eventually(lambda: tenant.infer().status_code == 429)
    tenant.limit({"requests_per_s": 4})  # a bucket of its own
    eventually(lambda: "RateLimit" in tenant.infer().headers)
    pause(1)  # until the bucket is full
    assert tenant.infer().headers["RateLimit"] == '"requests";r=3;t=1'


def test_a_job_is_bounded_in_items_and_by_what_is_queued(tenant: Tenant) -> None:
    tenant.limit({"job_items": 50, "model": "slow"}, {"queued_items": 60})
    eventually(lambda: tenant.submit(*["x"] * 51).status_code == 422)
    problem = tenant.submit(*["x"] * 51).json()
    assert problem["errors"][0]["code"] == "too_many_items"
    assert problem["limit"]["name"] == "job_items"
    assert tenant.submit(*["x"] * 50).status_code == 202
    # A starved test comes when those before have ended, and asks again.
    refused = eventually(lambda: (a := tenant.submit(*["x"] * 50)).status_code != 202 and a)
    assert is_refused(refused, "queued_items")["limit"]["value"] == 60
    assert refused.headers["RateLimit-Policy"] == '"queued-items";q=60;qu="items"'
    assert int(refused.headers["Retry-After"]) >= 1
    eventually(lambda: tenant.submit(*["x"] * 20).status_code == 202)


def test_what_is_retried_is_queued_too(tenant: Tenant) -> None:
    job = tenant.submit(*"x" * 2000).json()["id"]  # minutes of work, of which most is cancelled
    assert tenant.http.post(f"/jobs/{job}/cancel").status_code == 200
    eventually(lambda: tenant.http.get(f"/jobs/{job}").json()["state"] == "cancelled")
    tenant.limit({"queued_items": 10})
    eventually(lambda: tenant.submit(*"x" * 11).status_code == 422)
    is_refused(tenant.http.post(f"/jobs/{job}/retry"), "queued_items")
    tenant.limit()
    eventually(lambda: tenant.http.post(f"/jobs/{job}/retry").status_code == 200)
    assert tenant.http.post(f"/jobs/{job}/cancel").status_code == 200


def test_stored_bytes_are_bounded_and_freed_by_deleting(tenant: Tenant) -> None:
    tenant.limit({"stored_bytes": 1000})
    eventually(lambda: tenant.submit("x" * 1000).status_code == 429)
    first = tenant.submit("x" * 400, model="echo")
    assert first.status_code == 202
    path = first.headers["Location"]
    eventually(lambda: tenant.http.get(path).json()["state"] == "completed")
    refused = tenant.submit("x" * 400, model="echo")
    problem = is_refused(refused, "stored_bytes")
    assert problem["retryable"] is False
    assert "Retry-After" not in refused.headers
    assert tenant.http.delete(path).status_code == 204
    assert tenant.submit("x" * 400, model="echo").status_code == 202


def test_only_admins_set_limits_and_nobody_sees_anothers(
    tenant: Tenant, admin: httpx.Client
) -> None:
    assert tenant.http.put(f"/tenants/{tenant.name}/limits", json={"data": []}).status_code == 403
    assert tenant.http.get("/tenants/admins/limits").status_code == 404
    assert tenant.http.get("/tenants/nobody-at-all/limits").status_code == 404
    twice = {"data": [{"job_items": 1}, {"job_items": 2}]}
    put = admin.put(f"/tenants/{tenant.name}/limits", json=twice)
    assert (put.status_code, put.json()["errors"][0]["code"]) == (422, "duplicate")


def test_the_command_changes_what_is_named_and_nothing_else(
    tenant: Tenant, admin: httpx.Client, platform: Platform
) -> None:
    key = admin.headers["Authorization"].removeprefix("Bearer ")
    environ = {"MILLRACE_URL": platform.url, "MILLRACE_API_KEY": key}

    def limits(*options: str) -> str:
        return run_millrace("limits", tenant.name, *options, **environ).stdout.strip()

    limits("--requests-per-s", "10", "--job-items", "5")
    limits("--model", "echo", "--tokens-per-s", "2.5")
    shown = limits("--requests-per-s", "0", "--calls-in-flight", "3")
    assert shown.splitlines() == [
        "all models  all keys  calls_in_flight=3  job_items=5",
        "echo  all keys  tokens_per_s=2.5",
    ]
    assert limits("--model", "echo", "--clear").splitlines() == shown.splitlines()[:1]


def test_one_tenants_flood_is_not_anothers_trouble(admin: httpx.Client) -> None:
    flooder = Tenant(admin, "flooder")
    light = [Tenant(admin, f"light-{n}") for n in range(3)]
    with repeated(lambda _: flooder.infer("slow").status_code, callers=40) as seen:
        eventually(lambda: 429 in seen)

        def all_are_answered() -> bool:
            """Calls for three seconds; after a launch that took long others may be refused."""
            until_s, is_well = monotonic() + 3, True
            while is_well and monotonic() < until_s:
                is_well = all(tenant.infer("slow").status_code == 200 for tenant in light)
            return is_well

        eventually(all_are_answered)
    assert 200 in seen
    for tenant in (flooder, *light):
        tenant.http.close()


FLOOD = ["f"] * 30_000


@pytest.fixture(scope="module")
def tenants(platform: Platform) -> Iterator[dict[str, Client]]:
    made = {}
    for tenant in ("flood", "light"):
        key, _ = make_key_at(platform.settings.database_url, tenant)
        made[tenant] = Client(platform.url, api_key=key)
    yield made
    for client in made.values():
        client.close()


@pytest.mark.parametrize(
    ("flooder", "items", "terms"),
    [("flood", 20, {}), ("light", 1, {"class": "interactive"})],
    ids=["another tenant's", "its own tenant's"],
)
def test_a_small_or_urgent_job_passes_a_flood_that_came_first(
    tenants: dict[str, Client], flooder: str, items: int, terms: dict[str, str]
) -> None:
    theirs, light = tenants[flooder], tenants["light"]
    flood = theirs.jobs.submit("batchstring", FLOOD).id
    eventually(lambda: theirs.jobs.get(flood)["counts"]["succeeded"] > 1000)
    # All that the workers may have in hand is the flood's: seconds of it.
    job = light.jobs.submit("batchstring", ["l"] * items, **terms).id
    eventually(lambda: completed(light, job))
    still = theirs.jobs.get(flood)
    assert still["state"] == "running"
    assert still["counts"]["pending"] > 10_000
    theirs.request("POST", f"/jobs/{flood}/cancel")


@pytest.fixture(scope="module")
def clients(platform: Platform) -> Iterator[dict[str, httpx.Client]]:
    roles = {"alice": "tenant", "bob": "tenant", "house": "operator"}
    made = {name: http_of(platform, f"shared-{name}", role=role) for name, role in roles.items()}
    yield made
    for client in made.values():
        client.close()


def test_the_size_of_a_batch_is_that_of_ones_own_part(clients: dict[str, httpx.Client]) -> None:
    """batchstring takes 100 ms a launch: those who come together leave together."""

    def call(who: str) -> dict[str, Any]:
        def timing() -> dict[str, Any] | None:
            """A busy machine may predict that a call is late, and refuse it."""
            found = infer(clients[who], "batchstring", "x")
            return None if found.status_code == 429 else found.raise_for_status().json()["timing"]

        return eventually(timing) or {}

    def shared_a_launch() -> bool:
        with ThreadPoolExecutor(32) as threads:
            others = [threads.submit(call, "bob") for _ in range(31)]
            mine = threads.submit(call, "alice").result()
            assert (mine["batch_size"], mine["padding"]) == (1, 0.0)
            return max(future.result()["batch_size"] for future in others) > 1

    eventually(shared_a_launch)


def test_an_item_tells_of_its_launch_what_is_its_own(clients: dict[str, httpx.Client]) -> None:
    alice = clients["alice"]
    job = alice.post("/jobs", json={"model": "batchstring", "items": ["x", "y"]}).json()["id"]
    eventually(lambda: alice.get(f"/jobs/{job}").json()["state"] == "completed")
    item = f"/jobs/{job}/items/0"
    launch = alice.get(item).json()["launch"]
    assert launch.keys() == {"worker", "engine_ms", "started_at"}
    whole = clients["house"].get(item).json()["launch"]
    assert whole.keys() >= {"id", "items", "calls", "units", "padded_units", "reason"}
    assert launch.items() <= whole.items()
