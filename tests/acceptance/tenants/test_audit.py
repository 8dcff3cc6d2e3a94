"""The audit log has every verb and every admin act, under the id that its answer had; and a tenant
is erased on a platform that runs, and whose keeper is killed meanwhile."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from sqlalchemy import Engine, text

from jobs.identity import Role
from jobs.states import TERMINAL
from ops.supervisor.platform import Platform
from tests.support.cases import each
from tests.support.children import kill_and_replace, until
from tests.support.clients import bearer
from tests.support.command_line import run_millrace
from tests.support.keys import make_key
from tests.support.platforms import CLOSED
from tests.support.wait import eventually

SECRET = "not to be seen"

PLATFORM = CLOSED


class People:
    def __init__(self, platform: Platform, database: Engine) -> None:
        self.url, self.database = platform.url, database
        self.ids: dict[str, str] = {}
        roles: tuple[Role, ...] = ("tenant", "operator", "admin")
        self.clients = {role: self._client(role) for role in roles}

    def _client(self, role: Role) -> httpx.Client:
        tenant = "audited" if role == "tenant" else "house"
        key, self.ids[role] = make_key(self.database, tenant, role=role)
        headers = bearer(key, **{"X-Request-Id": "mine"})
        return httpx.Client(base_url=self.url, headers=headers)

    def do(self, role: str, method: str, path: str, **more: Any) -> tuple[str, Any]:
        """The id of the request, and its answer."""
        found = self.clients[role].request(method, path, **more)
        assert found.is_success, found.text
        return found.headers["x-request-id"], found.json() if found.content else None

    def log(self, **query: Any) -> list[dict[str, Any]]:
        _, page = self.do("admin", "GET", "/audit", params=query)
        rows: list[dict[str, Any]] = page["data"]
        return rows


@pytest.fixture(scope="module")
def people(platform: Platform, database: Engine) -> Iterator[People]:
    made = People(platform, database)
    yield made
    for client in made.clients.values():
        client.close()


def job(people: People) -> str:
    body = {
        "model": "echo",
        "items": [SECRET],
        "metadata": {"who": SECRET},
        "webhook": {"url": "http://127.0.0.1:9/"},
    }
    _, made = people.do("tenant", "POST", "/jobs", json=body)
    id: str = made["id"]
    path = f"/jobs/{id}"
    eventually(lambda: people.do("tenant", "GET", path)[1]["state"] in TERMINAL)
    return id


def job_of_several_verbs(people: People) -> tuple[str, list[str]]:
    """A job, and the ids of the requests that did something to it."""
    id = job(people)
    verbs = ("cancel", "pause", "resume", "retry", "webhooks/redeliver")
    done = [people.do("tenant", "POST", f"/jobs/{id}/{verb}")[0] for verb in verbs]
    return id, [*done, people.do("operator", "DELETE", f"/jobs/{id}")[0]]


def test_verbs_are_noted_with_who_did_them_to_what(people: People) -> None:
    id, done = job_of_several_verbs(people)
    found = [row for row in people.log(tenant="audited") if row["target"] == id]
    assert [row["request_id"] for row in found] == done[::-1]
    acts = ["job.cancel", "job.pause", "job.resume", "job.retry", "webhook.redeliver", "job.delete"]
    assert [row["act"] for row in found] == acts[::-1]
    actors = [people.ids["operator"], *[people.ids["tenant"]] * 5]
    assert [row["actor"] for row in found] == actors
    assert {row["tenant"] for row in found} == {"audited"}  # whoever did it
    detail = found[-1]["detail"]
    assert detail == {"was": "completed", "client_request_id": "mine"}


def test_secrets_keys_and_tenants_are_noted_and_nothing_secret_is(people: People) -> None:
    shown = people.do("tenant", "GET", "/webhooks/secret")[1]["secret"]
    people.do("tenant", "GET", "/webhooks/secret")  # shows nothing
    rotated = people.do("tenant", "POST", "/webhooks/secret")[1]["secret"]
    made = people.do("admin", "POST", "/keys", json={"tenant": "audited-too", "name": SECRET})[1]
    new = people.do("admin", "POST", f"/keys/{made['id']}/rotate")[1]
    people.do("admin", "DELETE", f"/keys/{new['id']}")
    people.do("admin", "PUT", "/tenants/audited-too", json={"weight": 2})
    people.do("admin", "DELETE", "/tenants/audited-too")
    acts = [row["act"] for row in people.log(tenant="audited-too")]
    assert acts == ["tenant.erase", "tenant.put", "key.revoke", "key.rotate", "key.create"]
    secrets = [row["act"] for row in people.log(tenant="audited") if "secret" in row["act"]]
    assert secrets == ["webhook_secret.rotate", "webhook_secret.show"]
    with people.database.connect() as tx:
        log = tx.scalars(text("SELECT audit::text FROM audit")).all()
    for secret in (shown, rotated, made["key"], new["key"], SECRET):
        assert not [row for row in log if secret in row]


def mine(people: People) -> list[dict[str, Any]]:
    """Entries about these people alone."""
    return [row for row in people.log() if row["actor"] in people.ids.values()]


def test_what_is_refused_is_not_noted(people: People) -> None:
    before = mine(people)
    for role, method, path in (
        ("tenant", "POST", "/jobs/job_01aryz6s41tsv4rrffq69g5fav/cancel"),
        ("tenant", "DELETE", "/tenants/house"),
        ("admin", "DELETE", "/tenants/house"),  # its own
        ("admin", "DELETE", "/tenants/nobody"),
        ("tenant", "GET", "/audit"),
    ):
        assert people.clients[role].request(method, path).is_client_error
    assert mine(people) == before


def test_the_log_is_read_by_pages_the_newest_first(people: People) -> None:
    job_of_several_verbs(people)
    everything = [row["id"] for row in people.log(limit=500, tenant="audited")]
    assert everything == sorted(everything, reverse=True)
    found: list[int] = []
    query: dict[str, Any] | None = {"limit": 3, "tenant": "audited"}
    while query:
        _, page = people.do("admin", "GET", "/audit", params=query)
        found += [row["id"] for row in page["data"]]
        query = query | {"after": page["next"]} if page["next"] else None
    assert found == everything


def test_acts_of_the_command_line_are_noted_too(people: People, platform: Platform) -> None:
    environ = platform.settings.environment()

    def run(*arguments: str) -> Any:
        return json.loads(run_millrace(*arguments, "--json", **environ).stdout)

    made = run("keys", "create", "--tenant", "byhand")
    run("keys", "revoke", made["id"])
    run("tenant", "byhand", "--weight", "3")
    assert "--yes" in run_millrace("tenant-erase", "byhand", status=1, **environ).output
    run("tenant-erase", "byhand", "--yes")
    rows = run("audit", "--tenant", "byhand")["data"]
    acts = ["tenant.erase", "tenant.change", "key.revoke", "key.create"]
    assert [row["act"] for row in rows] == acts
    assert {row["actor"] for row in rows} == {"cli"}
    assert made["key"] not in json.dumps(rows)
    checked = run("audit", "--verify")
    assert (checked["problem"], checked["entries"] >= len(rows)) == ("", True)
    eventually(lambda: run("tenant-erase", "byhand", "--yes")["complete"])


def test_every_answer_has_an_id_of_ours(people: People) -> None:
    call = {"json": {"model": "echo", "input": "x"}}
    asked: list[tuple[str, str, int, dict[str, Any]]] = [
        ("GET", "/livez", 200, {}),
        ("GET", "/nowhere", 404, {}),
        ("PATCH", "/jobs", 405, {}),
        ("GET", "/jobs?limit=x", 422, {}),
        ("POST", "/infer", 200, call),
        ("POST", "/infer", 422, {"json": {"model": "echo"}}),
        ("GET", "/openapi.json", 200, {}),
    ]
    for (method, path, status, more), case in each(asked):
        with case:
            found = people.clients["tenant"].request(method, path, **more)
            assert found.status_code == status
            [id] = found.headers.get_list("x-request-id")
            assert id.startswith("req_")
            assert status < 400 or found.json()["request_id"] == id


NAMED = {"tenants", "api_keys", "audit", "usage", "spend", "spend_told"}


def test_an_erasure_ends_whatever_dies_in_between(
    platform: Platform, http: httpx.Client, database: Engine
) -> None:
    leaving, staying = (
        bearer(make_key(database, name, role="admin")[0]) for name in ("leaving", "staying")
    )
    for headers in (leaving, staying):
        for n in range(10):
            lines = [{"custom_id": "leaving", "input": f"leaving {n}" * 10_000}]
            body: dict[str, Any] = {"model": "echo", "items": lines}
            more = {"Idempotency-Key": f'"{n}"'}
            assert http.post("/jobs", json=body, headers=headers | more).is_success
    slow = {"model": "batchstring", "items": ["leaving"] * 20_000}
    assert http.post("/jobs", json=slow, headers=leaving).is_success
    call = {"model": "echo", "input": "leaving"}
    assert http.post("/infer", json=call, headers=leaving | {"Idempotency-Key": '"k"'}).is_success

    assert http.delete("/tenants/leaving", headers=staying).status_code == 202
    eventually(lambda: http.get("/jobs", headers=leaving).status_code == 401)
    eventually(lambda: http.post("/infer", json=call, headers=leaving).status_code == 401)
    for _ in range(2):
        kill_and_replace(platform, "keeper")

    def complete() -> bool:
        found = http.get("/tenants/leaving/erasure", headers=staying)
        return bool(found.raise_for_status().json()["complete"])

    until(platform, complete)
    with database.connect() as tx:
        tables = tx.scalars(
            text("""SELECT c.relname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
                    WHERE a.attname = 'tenant_id' AND c.relkind IN ('r', 'p')
                      AND c.relnamespace = 'public'::regnamespace""")
        ).all()
        held = {
            table
            for table in tables
            if tx.scalar(text(f"SELECT count(*) FROM {table} WHERE tenant_id = 'leaving'"))
        }
    assert held <= NAMED
    assert len(http.get("/jobs", headers=staying).json()["data"]) == 10
