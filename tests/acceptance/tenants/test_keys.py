"""Access to a platform that runs: from the first key on, nobody comes in without one."""

import json
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from jobs.settings import SettingsError
from millrace import Client
from ops.cli import check
from ops.supervisor.platform import Platform
from tests.support.clients import bearer
from tests.support.command_line import run_millrace
from tests.support.jobs import paused
from tests.support.keys import make_key_at
from tests.support.models.entries import model
from tests.support.platforms import Platforms, spec
from tests.support.servers.identity_provider import IdentityProvider
from tests.support.wait import eventually

MODELS = model("echo", "echo")
CALL = {"model": "echo", "input": "x"}
JOB = {"model": "echo", "items": ["x"]}
SOON_S = 15.0
QUICK = spec(MODELS)
NewKey = Callable[..., tuple[str, str]]


@pytest.fixture(scope="module")
def provider() -> Iterator[IdentityProvider]:
    with IdentityProvider() as started:
        yield started


@pytest.fixture(scope="module")
def closed(platforms: Platforms, provider: IdentityProvider) -> Iterator[Platform]:
    """A platform where a key was made, and which trusts the provider's tokens."""
    with platforms.running(spec(MODELS, is_closed=True), **provider.named()) as started:
        yield started


@pytest.fixture
def new_key(closed: Platform) -> NewKey:
    return lambda *a, **more: make_key_at(closed.settings.database_url, *a, **more)


def ask(platform: Platform, key: str | None, method: str, path: str, **more: Any) -> httpx.Response:
    return httpx.request(method, platform.url + path, headers=bearer(key or ""), **more)


def submit(platform: Platform, key: str) -> str:
    answer = ask(platform, key, "POST", "/jobs", json=JOB)
    assert answer.status_code == 202, answer.text
    return str(answer.json()["id"])


def statuses(platform: Platform, key: str | None) -> list[int]:
    """Statuses of a look at jobs, and of a call."""
    asked = ask(platform, key, "GET", "/jobs"), ask(platform, key, "POST", "/infer", json=CALL)
    return [answer.status_code for answer in asked]


def ends(platform: Platform, key: str | None) -> None:
    """Checks that a key is refused within seconds, for jobs and for calls."""
    eventually(lambda: statuses(platform, key) == [401, 401], SOON_S)


def command(platform: Platform, *words: str, key: str = "") -> Any:
    environ = platform.settings.environment() | {"MILLRACE_API_KEY": key}
    environ |= {"MILLRACE_DATABASE_URL": "", "MILLRACE_REDIS_URL": ""}
    return json.loads(run_millrace(*words, **environ).stdout)


@pytest.mark.nightly
def test_the_first_key_that_is_made_while_it_runs_ends_the_open_door(platforms: Platforms) -> None:
    with platforms.running(QUICK) as platform:
        for credential in (None, "mk_whatever"):
            assert statuses(platform, credential) == [200, 200]
        made = command(platform, "keys", "create", "--tenant", "acme", "--json")
        assert made["id"].startswith("key_")
        ends(platform, "mk_whatever")
        ends(platform, None)
        assert ask(platform, None, "GET", "/jobs").json()["code"] == "unauthenticated"
        assert statuses(platform, made["key"]) == [200, 200]
        for path in ("/livez", "/readyz", "/health", "/version", "/openapi.json", "/docs"):
            assert ask(platform, None, "GET", path).status_code == 200
        jobs = command(platform, "jobs", "--json", key=made["key"])
        assert jobs == {"data": [], "next": None}


@pytest.mark.parametrize("by", ["command", "route"])
def test_a_revoked_key_is_refused_and_nothing_tells_it_from_one_that_never_was(
    closed: Platform, new_key: NewKey, by: str
) -> None:
    key, id = new_key("acme")
    admin, _ = new_key("ops", role="admin")
    assert statuses(closed, key) == [200, 200]
    if by == "command":
        command(closed, "keys", "revoke", id, "--json")
    else:
        assert ask(closed, admin, "DELETE", f"/keys/{id}").status_code == 204
    ends(closed, key)
    revoked, unknown = (ask(closed, sent, "GET", "/jobs") for sent in (key, "mk_" + "x" * 43))
    same = [{**one.json(), "request_id": ""} for one in (revoked, unknown)]
    assert same[0] == same[1]
    assert ask(closed, admin, "GET", f"/keys/{id}").json()["revoked_at"]


def test_a_revoked_key_watches_no_job_any_longer(closed: Platform, new_key: NewKey) -> None:
    (key, id), (another, _) = new_key("watchers"), new_key("watchers")
    with httpx.Client(base_url=closed.url, headers=bearer(another)) as http:
        job = paused(http, "echo", ["x"] * 20_000)
    with httpx.stream("GET", f"{closed.url}/jobs/{job}/events", headers=bearer(key)) as events:
        lines = events.iter_lines()
        assert next(line for line in lines if line.startswith("data: "))
        command(closed, "keys", "revoke", id, "--json")
        ends(closed, key)
        assert ask(closed, another, "POST", f"/jobs/{job}/resume").status_code == 200
        with suppress(httpx.RemoteProtocolError):  # broken off, or ended before the next event
            assert not any('"state":"completed"' in line for line in lines)


def test_a_key_that_expires_is_refused_from_then_on(closed: Platform, new_key: NewKey) -> None:
    def counts() -> str:
        """Returns a new key; "" where it has expired before it was used."""
        key, _ = new_key("acme", ttl_s=1.5)
        return key if statuses(closed, key) == [200, 200] else ""

    ends(closed, eventually(counts))


def test_a_rotated_key_and_its_successor_both_count_for_the_overlap(
    closed: Platform, new_key: NewKey
) -> None:
    admin, _ = new_key("ops", role="admin")

    def rotated() -> tuple[str, str, httpx.Response] | None:
        """A key that counts beside its successor; None where it is over before it was used."""
        key, id = new_key("acme", scopes=frozenset({"read", "infer"}))
        answer = ask(closed, admin, "POST", f"/keys/{id}/rotate", json={"overlap_s": 1.5})
        is_let_in = ask(closed, key, "GET", "/jobs").status_code == 200
        return (key, id, answer) if is_let_in else None

    key, id, answer = eventually(rotated)  # type: ignore[misc]
    assert (answer.status_code, answer.headers["cache-control"]) == (201, "no-store")
    made = answer.json()
    assert (made["tenant"], made["scopes"]) == ("acme", ["infer", "read"])
    assert ask(closed, made["key"], "GET", "/jobs").status_code == 200
    ends(closed, key)
    assert ask(closed, made["key"], "POST", "/infer", json=CALL).status_code == 200
    assert ask(closed, admin, "GET", f"/keys/{id}").json()["replaced_by"] == made["id"]
    assert ask(closed, admin, "POST", f"/keys/{id}/rotate").status_code == 409
    again = command(closed, "keys", "rotate", made["id"], "--overlap-s", "0", "--json")
    assert again["tenant"] == "acme"
    ends(closed, made["key"])


def test_a_tenant_lists_its_own_and_an_operator_works_on_everybodys(
    closed: Platform, new_key: NewKey
) -> None:
    (acme, _), (beta, _) = new_key("acme"), new_key("beta")
    operator, _ = new_key("ops", role="operator")
    id = submit(closed, acme)
    with closing(Client(closed.url, acme)) as client:
        client.jobs.wait(id)
    listed = {
        which: [job["id"] for job in ask(closed, operator, "GET", f"/jobs{which}").json()["data"]]
        for which in ("", "?tenant=acme", "?tenant=*", "?tenant=beta")
    }
    assert {which for which, jobs in listed.items() if id in jobs} == {"?tenant=acme", "?tenant=*"}
    assert ask(closed, beta, "GET", "/jobs?tenant=beta").status_code == 200
    for which in ("*", "acme"):
        refused = ask(closed, beta, "GET", f"/jobs?tenant={which}")
        assert (refused.status_code, refused.json()["code"]) == (403, "forbidden")
        assert "operate" in refused.json()["detail"]
        assert "insufficient_scope" in refused.headers["www-authenticate"]
    for path in ("", "/results", "/events", "/items/0", "/webhooks"):
        assert ask(closed, operator, "GET", f"/jobs/{id}{path}").status_code == 200, path
    assert ask(closed, operator, "POST", f"/jobs/{id}/cancel").json()["id"] == id
    assert ask(closed, operator, "DELETE", f"/jobs/{id}").status_code == 204
    assert ask(closed, acme, "GET", f"/jobs/{id}").status_code == 404


def test_an_admin_makes_keys_and_sets_terms_over_http(closed: Platform, new_key: NewKey) -> None:
    admin, _ = new_key("ops", role="admin")
    wanted = {"tenant": "gamma", "name": "ci", "scopes": ["read"], "expires_in_s": 60}
    made = ask(closed, admin, "POST", "/keys", json=wanted).json()
    assert ask(closed, made["key"], "GET", "/jobs").status_code == 200
    assert ask(closed, made["key"], "POST", "/infer", json=CALL).status_code == 403
    shown = ask(closed, admin, "GET", f"/keys/{made['id']}")
    assert made["key"] not in shown.text
    assert (shown.json()["hint"], shown.json()["name"]) == (made["key"][:8], "ci")
    eventually(lambda: ask(closed, admin, "GET", f"/keys/{made['id']}").json()["last_used_at"])
    [listed] = ask(closed, admin, "GET", "/keys?tenant=gamma").json()["data"]
    assert listed["id"] == made["id"]
    page = ask(closed, admin, "GET", "/keys?limit=1").json()
    after = ask(closed, admin, "GET", f"/keys?limit=1&after={page['next']}").json()
    assert page["data"][0]["id"] > after["data"][0]["id"]
    assert ask(closed, admin, "GET", "/tenants/gamma").json()["weight"] == 1
    terms = {"weight": 2.5, "soft_cap": 10.5, "hard_cap": None}
    put = ask(closed, admin, "PUT", "/tenants/gamma", json=terms).json()
    assert {name: put[name] for name in terms} == terms
    told = command(closed, "tenant", "gamma", "--weight", "4", "--json")
    assert (told["weight"], told["soft_cap"]) == (4, 10.5)
    names = [one["tenant"] for one in ask(closed, admin, "GET", "/tenants").json()["data"]]
    assert names == sorted(names)
    assert {"gamma", "ops"} <= set(names)
    bad: list[dict[str, Any]] = [{"tenant": "*"}, {"tenant": "a b"}, {"scopes": ["admin"]}]
    bad += [{"scopes": []}, {"role": "root"}, {"name": "a\0"}, {"name": "\ud800"}]
    for more in bad:
        content = json.dumps({"tenant": "x"} | more)
        assert ask(closed, admin, "POST", "/keys", content=content).status_code == 422, content
    assert ask(closed, admin, "GET", f"/keys/key_{'0' * 26}").status_code == 404


def test_commands_send_the_key_of_their_environment(closed: Platform, new_key: NewKey) -> None:
    key, _ = new_key("delta")
    said = command(closed, "infer", "--model", "echo", "hello", "--json", key=key)
    assert said["output"] == "hello"
    refused = run_millrace("jobs", "--url", closed.url, status=1, MILLRACE_API_KEY="mk_wrong")
    assert "No valid credential" in refused.stderr


def test_no_log_has_a_key(closed: Platform, new_key: NewKey) -> None:
    key, id = new_key("acme")
    secret = key[8:]
    submit(closed, key)
    made = ask(closed, new_key("ops", role="admin")[0], "POST", f"/keys/{id}/rotate").json()
    ask(closed, key + "x", "GET", "/jobs")
    logs = list((closed.settings.home / "logs").iterdir())
    assert any(log.name == "api.log" for log in logs)
    for log in logs:
        said = log.read_text(errors="replace")
        assert secret not in said
        assert made["key"][8:] not in said


@pytest.mark.parametrize("kid", ["RS256", "ES256", "EdDSA"])
def test_tokens_of_the_identity_provider_are_let_in(
    closed: Platform, provider: IdentityProvider, kid: str
) -> None:
    acme, beta = provider.token(kid), provider.token(kid, tenant="beta")
    operator = provider.token(kid, tenant="ops", role="operator")
    id = submit(closed, acme)
    assert ask(closed, acme, "POST", "/infer", json=CALL).status_code == 200
    assert ask(closed, beta, "GET", f"/jobs/{id}").status_code == 404
    assert ask(closed, operator, "GET", f"/jobs/{id}").status_code == 200
    narrow = provider.token(kid, scope="openid infer")
    assert ask(closed, narrow, "POST", "/infer", json=CALL).status_code == 200
    assert ask(closed, narrow, "GET", "/jobs").status_code == 403
    claims: list[dict[str, Any]] = [{"aud": "another"}, {"exp": 1}, {"tenant": None}]
    for bad in (None, acme[:-8] + "AAAAAAAA", *(provider.token(kid, **one) for one in claims)):
        assert statuses(closed, bad) == [401, 401]


def test_check_says_that_beyond_loopback_a_key_is_missing(
    closed: Platform, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MILLRACE_HOST", "0.0.0.0")
    for home, missing in ((tmp_path, 1), (closed.settings.home, 0)):
        monkeypatch.setenv("MILLRACE_HOME", str(home))
        wrong = check.problems()
        assert len(wrong) == missing
        assert all("millrace keys create" in problem for problem in wrong)


@pytest.mark.nightly
def test_beyond_loopback_it_starts_only_once_somebody_could_use_it(
    platforms: Platforms, tmp_path: Path
) -> None:
    with (
        pytest.raises(SettingsError, match="millrace keys create"),
        platforms.running(QUICK, home=tmp_path, host="0.0.0.0"),
    ):
        pass
    create = "keys", "create", "--tenant", "acme", "--json"
    key = json.loads(run_millrace(*create, MILLRACE_HOME=str(tmp_path)).stdout)["key"]
    with platforms.running(QUICK, home=tmp_path, host="0.0.0.0") as platform:
        assert ask(platform, None, "GET", "/jobs").status_code == 401
        assert ask(platform, key, "POST", "/infer", json=CALL).status_code == 200
