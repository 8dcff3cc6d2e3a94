"""The registry over HTTP: what its operations show, what they refuse, and how they say so."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from fastapi.testclient import TestClient
from sqlalchemy import Engine

from api.app import create_app
from jobs.settings import Settings
from jobs.store.registry import artifacts
from jobs.store.tenancy import EVERYBODY, acting
from jobs.store.tenants import audit
from tests.support.keys import make_key
from tests.support.stores.transactions import transact

ENTRY = {"engine": "echo", "target_ms": 40}
PROBE = {"inputs": ["a"], "outputs": ["a"]}
DIGEST = f"sha256:{'a' * 64}"
BASE = "/admin/models"


@pytest.fixture
def http(settings: Settings, database: Engine) -> Iterator[TestClient]:
    """A client with the key of an admin."""
    key, _ = make_key(database, tenant="house", role="admin")
    headers = {"Authorization": f"Bearer {key}"}
    with TestClient(create_app(settings), headers=headers) as client:
        yield client


def ask(http: TestClient, method: str, path: str, body: Any = None) -> Any:
    answer: httpx.Response = http.request(method, f"{BASE}{path}", json=body)
    assert answer.is_success, answer.text
    return answer.json() if answer.content else None


def version(name: str, **more: Any) -> dict[str, Any]:
    return {"name": "m", "version": name, "entry": ENTRY, **more}


def push(http: TestClient, name: str, **more: Any) -> str:
    return str(ask(http, "POST", "", version(name, **more))["change"])


def test_models_are_listed_with_versions_aliases_routes(http: TestClient, database: Engine) -> None:
    assert (push(http, "1"), push(http, "1"), push(http, "2", probe=PROBE)) == (
        "added", "unchanged", "added",
    )  # fmt: skip
    assert ask(http, "PUT", "/m/aliases/stable", {"version": "1"})["change"] == "added"
    splits = [{"version": "1", "percent": 95.0}, {"version": "2", "percent": 5.0}]
    ask(http, "PUT", "/m/routes/acme", {"splits": splits, "sticky": "user"})
    model = ask(http, "GET", "/m")
    assert ask(http, "GET", "")["data"] == [model]
    assert [(one["version"], one["state"]) for one in model["versions"]] == [
        ("1", "active"), ("2", "active"),
    ]  # fmt: skip
    assert model["aliases"] == {"stable": "1"}
    [route] = model["routes"]
    assert (route["tenant"], route["splits"], route["sticky"]) == ("acme", splits, "user")
    second = ask(http, "GET", "/m/versions/2")
    assert second == model["versions"][1]
    assert (second["entry"], second["artifact"]) == (ENTRY, None)
    assert second["probe"] == {**PROBE, "tolerance": 0.001, "params": {}}
    assert second["created_by"]
    with acting(database, EVERYBODY) as tx:
        acts = [one.act for one in audit.page(tx, EVERYBODY, after=None, limit=99)]
    assert {"model.push", "model.alias", "model.route"} <= set(acts)


def test_an_alias_and_a_route_are_removed_and_a_version_is_retired(http: TestClient) -> None:
    push(http, "1")
    ask(http, "PUT", "/m/aliases/stable", {"version": "1"})
    ask(http, "PUT", "/m/routes/*", {"splits": [{"version": "1", "percent": 100}]})
    refused = http.post(f"{BASE}/m/versions/1/retire")
    assert refused.status_code == 409
    assert "the alias 'stable', the route of all tenants" in refused.json()["detail"]
    for path in ("/m/aliases/stable", "/m/routes/*"):
        assert ask(http, "DELETE", path) is None
        assert http.delete(f"{BASE}{path}").status_code == 404
    retired = ask(http, "POST", "/m/versions/1/retire")
    assert (retired["change"], retired["unfinished_jobs"]) == ("changed", [])
    assert ask(http, "GET", "/m/versions/1")["state"] == "retired"
    assert ask(http, "PUT", "/m/versions/1/probe", PROBE)["change"] == "added"
    assert ask(http, "PUT", "/m/versions/1/probe", PROBE)["change"] == "unchanged"
    assert push(http, "1") == "activated"


def test_entries_of_a_models_file_are_registered_all_or_none(http: TestClient) -> None:
    entries = [{"name": "m", "version": name, **ENTRY} for name in "12"]
    applied = ask(http, "POST", "/apply", {"models": entries})["data"]
    assert [(one["version"], one["change"]) for one in applied] == [("1", "added"), ("2", "added")]
    broken = [{"name": "m", "version": "3", **ENTRY}, {"name": "m", "version": "4"}]
    assert http.post(f"{BASE}/apply", json={"models": broken}).status_code == 422
    assert http.get(f"{BASE}/m/versions/3").status_code == 404
    for wrong in ([{"version": "1"}], [{"name": 1, "version": "1"}], [], "x"):
        assert http.post(f"{BASE}/apply", json={"models": wrong}).status_code == 422


REFUSED: list[tuple[str, str, Any, int, str]] = [
    ("POST", "", {"version": "2", "entry": ENTRY}, 422, "name"),
    ("POST", "", {"name": "m", "version": "2"}, 422, "entry"),
    ("POST", "", {"name": "m@1", "version": "2", "entry": ENTRY}, 422, "name"),
    ("POST", "", version("2", entry={"engine": "x"}), 422, "no engine 'x'"),
    ("POST", "", version("1", entry={"engine": "echo"}), 409, "target_ms"),
    ("POST", "", version("2", artifact="x"), 422, "artifact"),
    ("POST", "", version("2", artifact=DIGEST), 422, "push its folder first"),
    ("POST", "", version("2", probe={}), 422, "inputs"),
    ("GET", "/none", None, 404, "no model 'none'"),
    ("GET", "/m/versions/9", None, 404, "no version m@9"),
    ("POST", "/m/versions/9/retire", None, 404, "no version m@9"),
    ("PUT", "/m/versions/9/probe", PROBE, 404, "no version m@9"),
    ("PUT", "/m/versions/1/probe", {"inputs": [1], "outputs": []}, 422, "one output for each"),
    ("PUT", "/m/versions/1/probe", {"inputs": [1]}, 422, "outputs"),
    ("PUT", "/m/versions/1/probe", {**PROBE, "tolerance": 2}, 422, "tolerance"),
    ("PUT", "/m/aliases/stable", {"version": "9"}, 404, "there are: 1. Push it first"),
    ("PUT", "/m/aliases/1", {"version": "1"}, 422, "begins with a letter"),
    ("DELETE", "/m/aliases/none", None, 404, "no alias 'none'"),
    ("PUT", "/m/routes/*", {"splits": [{"version": "1", "percent": 9}]}, 422, "make 100"),
    ("DELETE", "/m/routes/acme", None, 404, "no route of acme"),
]


def test_bad_input_is_refused_with_what_is_wrong(http: TestClient) -> None:
    push(http, "1")
    for method, path, body, status, says in REFUSED:
        answer: httpx.Response = http.request(method, f"{BASE}{path}", json=body)
        assert (answer.status_code, says in answer.text) == (status, True), answer.text
    assert [one["version"] for one in ask(http, "GET", "/m")["versions"]] == ["1"]


def test_an_artifact_whose_contents_are_gone_is_refused(http: TestClient, database: Engine) -> None:
    transact(database, artifacts.add, DIGEST, "{}", 1, "cli")
    assert push(http, "1", artifact=DIGEST) == "added"
    with database.begin() as tx:
        tx.exec_driver_sql("UPDATE artifacts SET state = 'erased'")
    refused = http.post(BASE, json=version("2", artifact=DIGEST))
    assert (refused.status_code, "push its folder again" in refused.text) == (409, True)
