"""The audit log: every verb and every admin act, under the id that its answer had."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from click.testing import CliRunner
from sqlalchemy import Engine, text

from jobs.identity import Role
from jobs.states import TERMINAL
from ops.cli.main import main
from ops.supervisor.platform import Platform
from tests.support.clients import bearer
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
    nowhere = "job_01aryz6s41tsv4rrffq69g5fav"
    for role, method, path in (
        ("tenant", "POST", f"/jobs/{nowhere}/cancel"),
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
    after: dict[str, int] = {}
    while True:
        _, page = people.do(
            "admin", "GET", "/audit", params={"limit": 3, "tenant": "audited", **after}
        )
        found += [row["id"] for row in page["data"]]
        if page["next"] is None:
            break
        after = {"after": page["next"]}
    assert found == everything


def test_acts_of_the_command_line_are_noted_too(
    people: People, platform: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in platform.settings.environment().items():
        monkeypatch.setenv(name, value)

    def run(*arguments: str) -> Any:
        found = CliRunner().invoke(main, [*arguments, "--json"])
        assert found.exit_code == 0, found.output
        return json.loads(found.stdout)

    made = run("keys", "create", "--tenant", "byhand")
    run("keys", "revoke", made["id"])
    run("tenant", "byhand", "--weight", "3")
    refused = CliRunner().invoke(main, ["tenant-erase", "byhand"])
    assert (refused.exit_code, "--yes" in refused.output) == (1, True)
    run("tenant-erase", "byhand", "--yes")
    rows = run("audit", "--tenant", "byhand")["data"]
    acts = ["tenant.erase", "tenant.change", "key.revoke", "key.create"]
    assert [row["act"] for row in rows] == acts
    assert {row["actor"] for row in rows} == {"cli"}
    assert made["key"] not in json.dumps(rows)
    checked = run("audit", "--verify")
    assert (checked["problem"], checked["entries"] >= len(rows)) == ("", True)
    eventually(lambda: run("tenant-erase", "byhand", "--yes")["complete"])


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/livez", 200),
        ("GET", "/nowhere", 404),
        ("PATCH", "/jobs", 405),
        ("GET", "/jobs?limit=x", 422),
        ("POST", "/infer", 200),
        ("POST", "/infer", 422),
        ("GET", "/openapi.json", 200),
    ],
)
def test_every_answer_has_an_id_of_ours(
    people: People, method: str, path: str, status: int
) -> None:
    body = {"model": "echo", "input": "x"} if status == 200 else {"model": "echo"}
    more = {"json": body} if path == "/infer" else {}
    found = people.clients["tenant"].request(method, path, **more)  # type: ignore[arg-type]
    assert found.status_code == status
    [id] = found.headers.get_list("x-request-id")
    assert id.startswith("req_")
    if status >= 400:
        assert found.json()["request_id"] == id
