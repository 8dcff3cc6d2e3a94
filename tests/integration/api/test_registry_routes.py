"""The registry over HTTP: what its operations show, what they refuse, and how they say so."""

from datetime import datetime
from typing import Any

import httpx

from jobs.store.registry import artifacts
from tests.integration.api.conftest import People
from tests.support.cases import each
from tests.support.stores.transactions import execute, scalars, transact
from tests.support.wait import eventually

ENTRY = {"engine": "echo", "target_ms": 40}
PROBE = {"inputs": ["a"], "outputs": ["a"]}
DIGEST = f"sha256:{'a' * 64}"


def send(people: People, method: str, path: str, body: Any = None) -> httpx.Response:
    return people.send("admin", method, f"/admin/models{path}", json=body)


def ask(people: People, method: str, path: str, body: Any = None) -> Any:
    answer = send(people, method, path, body)
    assert answer.is_success, answer.text
    return answer.json() if answer.content else None


def version(name: str, **more: Any) -> dict[str, Any]:
    return {"name": "m", "version": name, "entry": ENTRY, **more}


def push(people: People, name: str, **more: Any) -> str:
    return str(ask(people, "POST", "", version(name, **more))["change"])


def test_models_are_listed_with_versions_aliases_routes(people: People) -> None:
    changes = push(people, "1"), push(people, "1"), push(people, "2", probe=PROBE)
    assert changes == ("added", "unchanged", "added")
    assert ask(people, "PUT", "/m/aliases/stable", {"version": "1"})["change"] == "added"
    splits = [{"version": "1", "percent": 95.0}, {"version": "2", "percent": 5.0}]
    ask(people, "PUT", "/m/routes/acme", {"splits": splits, "sticky": "user"})
    model = ask(people, "GET", "/m")
    assert ask(people, "GET", "")["data"] == [model]
    states = {one["version"]: one["state"] for one in model["versions"]}
    assert states == {"1": "active", "2": "active"}
    assert model["aliases"] == {"stable": "1"}
    [route] = model["routes"]
    assert (route["tenant"], route["splits"], route["sticky"]) == ("acme", splits, "user")
    second = ask(people, "GET", "/m/versions/2")
    assert second == model["versions"][1]
    assert (second["entry"], second["artifact"]) == (ENTRY, None)
    assert second["probe"] == {**PROBE, "tolerance": 0.001, "params": {}}
    assert second["created_by"]
    acts = scalars(people.database, "SELECT act FROM audit")
    assert {"model.push", "model.alias", "model.route"} <= {*acts}


def test_openais_list_says_when_a_version_was_registered(people: People) -> None:
    push(people, "1")
    registered = datetime.fromisoformat(ask(people, "GET", "/m/versions/1")["created_at"])
    found = eventually(
        lambda: (one := people.send("admin", "GET", "/v1/models/m@1")).is_success and one.json()
    )
    assert found["created"] == int(registered.timestamp())


def test_an_alias_and_a_route_are_removed_and_a_version_is_retired(people: People) -> None:
    push(people, "1")
    ask(people, "PUT", "/m/aliases/stable", {"version": "1"})
    ask(people, "PUT", "/m/routes/*", {"splits": [{"version": "1", "percent": 100}]})
    refused = send(people, "POST", "/m/versions/1/retire")
    assert refused.status_code == 409
    assert "the alias 'stable', the route of all tenants" in refused.json()["detail"]
    for path in ("/m/aliases/stable", "/m/routes/*"):
        assert ask(people, "DELETE", path) is None
        assert send(people, "DELETE", path).status_code == 404
    retired = ask(people, "POST", "/m/versions/1/retire")
    assert (retired["change"], retired["unfinished_jobs"]) == ("changed", [])
    assert ask(people, "GET", "/m/versions/1")["state"] == "retired"
    for change in ("added", "unchanged"):
        assert ask(people, "PUT", "/m/versions/1/probe", PROBE)["change"] == change
    assert push(people, "1") == "activated"


def test_entries_of_a_models_file_are_registered_all_or_none(people: People) -> None:
    entries = [{"name": "m", "version": name, **ENTRY} for name in "12"]
    applied = ask(people, "POST", "/apply", {"models": entries})["data"]
    assert [(one["version"], one["change"]) for one in applied] == [("1", "added"), ("2", "added")]
    broken = [{"name": "m", "version": "3", **ENTRY}, {"name": "m", "version": "4"}]
    for wrong in (broken, [{"version": "1"}], [{"name": 1, "version": "1"}], [], "x"):
        assert send(people, "POST", "/apply", {"models": wrong}).status_code == 422
    assert send(people, "GET", "/m/versions/3").status_code == 404


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


def test_bad_input_is_refused_with_what_is_wrong(people: People) -> None:
    push(people, "1")
    for (method, path, body, status, says), case in each(REFUSED):
        with case:
            answer = send(people, method, path, body)
            assert (answer.status_code, says in answer.text) == (status, True), answer.text
    assert [one["version"] for one in ask(people, "GET", "/m")["versions"]] == ["1"]


def test_an_artifact_whose_contents_are_gone_is_refused(people: People) -> None:
    transact(people.database, artifacts.add, DIGEST, "{}", 1, "cli")
    assert push(people, "1", artifact=DIGEST) == "added"
    execute(people.database, "UPDATE artifacts SET state = 'erased'")
    refused = send(people, "POST", "", version("2", artifact=DIGEST))
    assert (refused.status_code, "push its folder again" in refused.text) == (409, True)
