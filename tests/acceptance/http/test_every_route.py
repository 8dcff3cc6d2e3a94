"""Every operation of /openapi.json, asked with every kind of credential: each gets what is due, and
what is another tenant's is answered as what doesn't exist. An operation that the walk doesn't know
fails it."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest
from sqlalchemy import text

from jobs import ids
from jobs.api_keys import NewKey
from jobs.identity import ROLES, SCOPES, Role, Scope
from jobs.states import TERMINAL
from jobs.store import db
from jobs.store.jobs import responses
from jobs.store.jobs.responses import NewResponse
from jobs.store.tenants import api_keys
from ops.supervisor.platform import Platform
from tests.support.platforms import CLOSED
from tests.support.wait import eventually

Answer = tuple[int, dict[str, str], str]

PLATFORM = CLOSED


@dataclass(frozen=True)
class Way:
    """How an operation is asked for. scope: what a credential needs for it, None: nothing at all;
    status: of the answer to who may; about: what the id in its path is of; own: for its own tenant
    alone, though others may see it."""

    scope: Scope | None
    status: int = 200
    about: str = ""
    more: dict[str, Any] = field(default_factory=dict)
    own: bool = False


JOB = {"json": {"model": "echo", "items": ["x"], "webhook": {"url": "http://127.0.0.1:9/"}}}
CALL = {"json": {"model": "echo", "input": "x"}}
TENSORS = {"json": {"inputs": [{"name": "text", "shape": [1], "datatype": "BYTES", "data": ["x"]}]}}
CHAT = {"json": {"model": "echo", "messages": [{"role": "user", "content": "x"}]}}
RESPONSE = {"json": {"model": "echo", "input": "x"}}
PROMPT = {"json": {"model": "echo", "prompt": "x"}}
EMBEDDINGS = {"json": {"model": "minilm", "input": "x"}}

FORM = {"files": {"file": ("a.jsonl", b"{}")}, "data": {"purpose": "batch"}}
BATCH = {
    "json": {
        "input_file_id": "file_01aryz6s41tsv4rrffq69g5fav",
        "endpoint": "/v1/embeddings",
        "completion_window": "1h",
    }
}
MESSAGE = {"model": "echo", "max_tokens": 1, "messages": [{"role": "user", "content": "x"}]}
MESSAGES = {"json": {"requests": [{"custom_id": "a", "params": MESSAGE}]}}
VERSION = {"json": {"name": "absent", "version": "1", "entry": {"engine": "none"}}}
ROUTE = {"json": {"splits": [{"version": "1", "percent": 100}]}}
PROBE = {"json": {"inputs": [1], "outputs": [1]}}
ROLLOUT = {"json": {"model": "absent", "canary": "2"}}
REASON = {"json": {"reason": "x"}}

WALK = {
    "GET /livez": Way(None),
    "GET /readyz": Way(None),
    "GET /metrics": Way("operate"),
    "GET /models": Way("read"),
    "GET /models/{model}/ready": Way("read"),
    "GET /models/{model}/why": Way("read"),
    "GET /why": Way("operate"),
    "GET /history": Way("operate"),
    "GET /calls": Way("read"),
    "GET /calls/{call_id}": Way("read", about="call"),
    "GET /calls/{call_id}/stream": Way("infer", 404, about="call"),  # of one that is no stream
    "POST /calls/{call_id}/cancel": Way("infer", 404, about="call"),  # of one that has ended
    "POST /infer": Way("infer", more=CALL),
    "POST /v1/embeddings": Way("infer", more=EMBEDDINGS),
    "POST /v1/chat/completions": Way("infer", 400, more=CHAT),  # of no model that generates
    "POST /v1/completions": Way("infer", 400, more=PROMPT),
    "POST /jobs": Way("submit", 202, more=JOB),
    "GET /jobs": Way("read"),
    "GET /jobs/{job_id}": Way("read", about="job"),
    "GET /jobs/{job_id}/events": Way("read", about="job"),
    "GET /jobs/{job_id}/items/{seq}": Way("read", about="job"),
    "GET /jobs/{job_id}/results": Way("read", about="job"),
    "GET /jobs/{job_id}/webhooks": Way("read", about="job"),
    "GET /jobs/{job_id}/why": Way("read", about="job"),
    "POST /jobs/{job_id}/webhooks/redeliver": Way("submit", 202, about="job"),
    "POST /jobs/{job_id}/cancel": Way("submit", about="job"),
    "POST /jobs/{job_id}/pause": Way("submit", about="job"),
    "POST /jobs/{job_id}/resume": Way("submit", about="job"),
    "POST /jobs/{job_id}/resubmit": Way("submit", 202, "job", {"json": {}}, own=True),
    "POST /jobs/{job_id}/retry": Way("submit", about="job"),
    "DELETE /jobs/{job_id}": Way("submit", 204, about="job"),
    "GET /webhooks/secret": Way("submit"),
    "POST /webhooks/secret": Way("submit"),
    "GET /webhooks/endpoint": Way("read"),
    "PUT /webhooks/endpoint": Way("submit", more={"json": {"url": None}}),
    "GET /usage": Way("read"),
    "GET /workers": Way("operate"),
    "GET /workers/{worker_id}": Way("operate", 404),  # of none that is there
    "GET /workers/{worker_id}/logs": Way("operate", 404),
    "POST /workers/{worker_id}/drain": Way("operate", 404),
    "POST /workers/{worker_id}/undrain": Way("operate", 404),
    "GET /audit": Way("admin"),
    "GET /keys": Way("admin"),
    "POST /keys": Way("admin", 201, more={"json": {"tenant": "alice"}}),
    "GET /keys/{key_id}": Way("admin", about="key"),
    "POST /keys/{key_id}/rotate": Way("admin", 201, about="key"),
    "DELETE /keys/{key_id}": Way("admin", 204, about="key"),
    "GET /tenants": Way("admin"),
    "GET /tenants/{tenant}": Way("admin", about="tenant"),
    "PUT /tenants/{tenant}": Way("admin", about="tenant", more={"json": {"weight": 2}}),
    "GET /tenants/{tenant}/limits": Way("read", about="tenant"),
    "PUT /tenants/{tenant}/limits": Way("admin", about="tenant", more={"json": {"data": []}}),
    "DELETE /tenants/{tenant}": Way("admin", 202, about="tenant"),
    "GET /tenants/{tenant}/erasure": Way("admin", about="erased tenant"),
    "GET /admin/models": Way("admin"),
    "POST /admin/models": Way("admin", 422, more=VERSION),
    "POST /admin/models/apply": Way("admin", 422, more={"json": {"models": []}}),
    "GET /admin/models/{name}": Way("admin", 404),  # of none that is there, as all below
    "GET /admin/models/{name}/versions/{version}": Way("admin", 404),
    "POST /admin/models/{name}/versions/{version}/retire": Way("admin", 404),
    "PUT /admin/models/{name}/versions/{version}/probe": Way("admin", 404, more=PROBE),
    "PUT /admin/models/{name}/aliases/{alias}": Way("admin", 404, more={"json": {"version": "1"}}),
    "DELETE /admin/models/{name}/aliases/{alias}": Way("admin", 404),
    "PUT /admin/models/{name}/routes/{tenant}": Way("admin", 404, about="tenant", more=ROUTE),
    "DELETE /admin/models/{name}/routes/{tenant}": Way("admin", 404, about="tenant"),
    "GET /admin/pools": Way("operate"),
    "GET /admin/pools/{pool}": Way("operate", 404),  # of none that is there, as all below
    "PUT /admin/pools/{pool}/scaling": Way("operate", 404, more={"json": {"policy": {}}}),
    "DELETE /admin/pools/{pool}/scaling": Way("operate", 404),
    "POST /admin/pools/{pool}/scaling/pause": Way("operate", 404, more=REASON),
    "POST /admin/pools/{pool}/scaling/resume": Way("operate", 404, more=REASON),
    "GET /rollouts": Way("operate"),
    "POST /rollouts": Way("operate", 404, more=ROLLOUT),
    "GET /rollouts/{named}": Way("operate", 404),
    "POST /rollouts/{named}/hold": Way("operate", 404, more=REASON),
    "POST /rollouts/{named}/resume": Way("operate", 404, more=REASON),
    "POST /rollouts/{named}/promote": Way("operate", 404, more=REASON),
    "POST /rollouts/{named}/rollback": Way("operate", 404, more=REASON),
    "GET /v2/health/live": Way(None),
    "GET /v2/health/ready": Way(None),
    "GET /v2": Way("read"),
    "GET /v2/models/{model}": Way("read"),
    "GET /v2/models/{model}/versions/{version}": Way("read"),
    "GET /v2/models/{model}/config": Way("read"),
    "GET /v2/models/{model}/versions/{version}/config": Way("read"),
    "GET /v2/models/{model}/ready": Way("read"),
    "GET /v2/models/{model}/versions/{version}/ready": Way("read"),
    "POST /v2/repository/index": Way("read"),
    "POST /v2/models/{model}/infer": Way("infer", more=TENSORS),
    "POST /v2/models/{model}/versions/{version}/infer": Way("infer", more=TENSORS),
    "GET /v1/models": Way("read"),
    "GET /v1/models/{model}": Way("read"),
    "POST /v1/files": Way("submit", more=FORM),
    "GET /v1/files": Way("read"),
    "GET /v1/files/{file_id}": Way("read", about="file"),
    "GET /v1/files/{file_id}/content": Way("read", about="file"),
    "DELETE /v1/files/{file_id}": Way("submit", about="file"),
    "POST /v1/batches": Way("submit", more=BATCH),
    "GET /v1/batches": Way("read"),
    "GET /v1/batches/{batch_id}": Way("read", about="batch"),
    "POST /v1/batches/{batch_id}/cancel": Way("submit", 409, about="batch"),  # of one that ended
    "POST /v1/responses": Way("infer", 400, more=RESPONSE),  # of no model that generates
    "GET /v1/responses/{response_id}": Way("read", about="response"),
    "GET /v1/responses/{response_id}/input_items": Way("read", about="response"),
    "POST /v1/responses/{response_id}/cancel": Way("submit", 400, about="response"),  # of a call
    "DELETE /v1/responses/{response_id}": Way("submit", about="response"),
    "POST /v1/messages": Way("infer", 400, more={"json": MESSAGE}),  # of no model that generates
    "POST /v1/messages/count_tokens": Way("infer", 400, more={"json": MESSAGE}),
    "POST /v1/messages/batches": Way("submit", 400, more=MESSAGES),  # of no model that converses
    "GET /v1/messages/batches": Way("read"),
    "GET /v1/messages/batches/{message_batch_id}": Way("read", about="messages"),
    "GET /v1/messages/batches/{message_batch_id}/results": Way("read", about="messages"),
    "POST /v1/messages/batches/{message_batch_id}/cancel": Way("submit", about="messages"),
    "DELETE /v1/messages/batches/{message_batch_id}": Way("submit", about="messages"),
}
NOWHERE = {
    "job": "job_01aryz6s41tsv4rrffq69g5fav",
    "file": "file_01aryz6s41tsv4rrffq69g5fav",
    "batch": "batch_01aryz6s41tsv4rrffq69g5fav",
    "messages": "msgbatch_01aryz6s41tsv4rrffq69g5fav",
    "response": "resp_01aryz6s41tsv4rrffq69g5fav",
    "key": "key_01aryz6s41tsv4rrffq69g5fav",
    "call": "call_01aryz6s41tsv4rrffq69g5fav",
    "tenant": "nobody",
    "erased tenant": "nobody",
}
SECURED = [name for name, way in WALK.items() if way.scope]
LOOKS = {
    "job": "GET /jobs/{job_id}",
    "file": "GET /v1/files/{file_id}",
    "batch": "GET /v1/batches/{batch_id}",
    "messages": "GET /v1/messages/batches/{message_batch_id}",
    "response": "GET /v1/responses/{response_id}",
    "call": "GET /calls/{call_id}",
}
"""How to look at what tenants make."""
OF_TENANTS = [name for name, way in WALK.items() if way.about in LOOKS]


class World:
    """A platform with the keys of several tenants, and of others that are no good."""

    def __init__(self, platform: Platform) -> None:
        self._kept: dict[str, str] = {}
        self.http = httpx.Client(base_url=platform.url)
        self.database = db.connect(platform.settings.database_url, pool_size=1)
        self.keys = {
            "alice": self.key("alice"),
            "mallory": self.key("mallory"),
            "operator": self.key("house", "operator"),
            "admin": self.key("house", "admin"),
            "unknown": "mk_" + "a" * 43,
            "malformed": "mk_a",
            "expired": self.key("alice", "admin", ending="expires_at = now() - interval '1 s'"),
            "revoked": self.key("alice", "admin", ending="revoked_at = now()"),
        }
        for scope in SCOPES:
            rest = frozenset(ROLES["admin"]) - {scope}
            self.keys[f"not {scope}"] = self.key("alice", "admin", scopes=rest)

    def close(self) -> None:
        self.http.close()
        self.database.dispose()

    def key(self, tenant: str, role: Role = "tenant", ending: str = "", **more: Any) -> str:
        asked = NewKey(tenant, role=role, **more)
        with self.database.begin() as tx:
            row = api_keys.create(tx, asked)
            if ending:
                tx.execute(text(f"UPDATE api_keys SET {ending} WHERE id = :id"), {"id": row.id})
        return asked.secret

    def ask(self, name: str, who: str | None, id: str = "") -> httpx.Response:
        """who: one of `keys`, or None for no credential."""
        method, path = name.split(" ")
        names = r"\{(job_id|key_id|tenant|file_id|batch_id|message_batch_id|call_id|response_id)\}"
        path = re.sub(names, id, path)
        path = path.replace("{model}", "echo").replace("{seq}", "0").replace("{version}", "1")
        path = path.replace("{worker_id}", "4711").replace("{alias}", "stable")
        for absent in ("{name}", "{named}", "{pool}"):
            path = path.replace(absent, "absent")
        assert "{" not in path, f"the walk doesn't know what to put into {name}"
        headers = {"Authorization": f"Bearer {self.keys[who]}"} if who else {}
        return self.http.request(method, path, headers=headers, **WALK[name].more)

    def seen(self, name: str, who: str | None, id: str = "") -> Answer:
        """The answer, but for what differs between any two requests: their ids, and the id that
        was asked for."""
        found = self.ask(name, who, id)
        names = {value: "ID" for value in (id, found.headers["x-request-id"]) if value}
        body = found.text
        for value, instead in names.items():
            body = body.replace(value, instead)
        once = ("date", "x-request-id", "request-id")
        headers = {k: v for k, v in found.headers.items() if k not in once}
        if WALK[name].about.endswith("tenant"):  # a name may be longer than another one
            headers.pop("content-length", None)
        return found.status_code, headers, body

    def kept(self, about: str) -> str:
        """The id of something of Alice's that is there all the time."""
        if about not in self._kept:
            self._kept[about] = self.made(about)
        return self._kept[about]

    def made(self, about: str) -> str:
        """The id of something new of Alice's."""
        if about == "job":
            return self._job()
        if about == "file":
            return str(self.ask("POST /v1/files", "alice").json()["id"])
        if about == "batch":
            return self._batch()
        if about == "messages":
            return self._messages()
        if about == "call":
            return self._call()
        if about == "response":
            return self._response()
        if about == "key":
            with self.database.begin() as tx:
                return ids.show("key", api_keys.create(tx, NewKey("alice")).id)
        name = f"tenant-{ids.new().hex}"
        if about:
            self.key(name)
        if about == "erased tenant":
            assert self.ask("DELETE /tenants/{tenant}", "admin", name).status_code == 202
        return name if about else ""

    def _job(self) -> str:
        id: str = self.ask("POST /jobs", "alice").json()["id"]
        self._await(id)
        return id

    def _call(self) -> str:
        """Makes a call whose record can be read."""
        id: str = self.ask("POST /infer", "alice").json()["id"]
        eventually(lambda: self.ask("GET /calls/{call_id}", "alice", id).is_success)
        return id

    def _batch(self) -> str:
        """Makes a batch of a file with an invalid line."""
        asked = BATCH["json"] | {"input_file_id": self.made("file")}
        headers = {"Authorization": f"Bearer {self.keys['alice']}"}
        id: str = self.http.post("/v1/batches", json=asked, headers=headers).json()["id"]
        self._await(id)
        return id

    def _messages(self) -> str:
        """Makes a messages batch out of a job: none of the samples converses."""
        job = self._job()
        with self.database.begin() as tx:
            become = "UPDATE jobs SET dialect = 'anthropic', asked = '{}' WHERE id = :id"
            tx.execute(text(become), {"id": ids.parse("job", job)})
        return job.replace("job_", "msgbatch_")

    def _response(self) -> str:
        """Stores a response: none of the samples generates."""
        id, ended = ids.new(), b'{"status":"completed","output":[]}'
        with self.database.begin() as tx:
            responses.store(tx, NewResponse(id, "alice", None, b"{}", b"[]", ended), 1.0)
        return ids.show("resp", id)

    def _await(self, job: str) -> None:
        def ended() -> bool:
            state = self.ask("GET /jobs/{job_id}", "alice", job).json()["state"]
            return state in TERMINAL

        eventually(ended)


@pytest.fixture(scope="module")
def world(platform: Platform) -> Iterator[World]:
    made = World(platform)
    yield made
    made.close()


def test_the_walk_knows_every_operation(world: World) -> None:
    document = world.http.get("/openapi.json").json()
    operations = {
        f"{method.upper()} {path}" for path, found in document["paths"].items() for method in found
    }
    assert operations == WALK.keys()


@pytest.mark.parametrize("name", [name for name, way in WALK.items() if way.scope is None])
def test_what_needs_no_credential_is_answered_to_all_alike(world: World, name: str) -> None:
    answers = [world.seen(name, who) for who in (None, "alice", "revoked", "admin")]
    assert answers == [answers[0]] * 4
    assert answers[0][0] == 200


@pytest.mark.parametrize("name", SECURED)
@pytest.mark.parametrize("who", [None, "unknown", "malformed", "expired", "revoked"])
def test_without_a_good_key_nobody_gets_in(world: World, name: str, who: str | None) -> None:
    id = world.kept(WALK[name].about)
    status, headers, body = world.seen(name, who, id)
    assert (status, headers["www-authenticate"]) == (401, "Bearer")
    if who:  # nothing says that the key was ever good
        assert (status, headers, body) == world.seen(name, "unknown", id)
    if id:
        assert (status, headers, body) == world.seen(name, who, NOWHERE[WALK[name].about])


@pytest.mark.parametrize("name", SECURED)
def test_a_key_without_the_scope_gets_nothing(world: World, name: str) -> None:
    way = WALK[name]
    id = world.kept(way.about)
    found = world.seen(name, f"not {way.scope}", id)
    assert found[0] == 403
    assert f"lacks the scope {way.scope}" in found[2]
    if id:
        assert found == world.seen(name, f"not {way.scope}", NOWHERE[way.about])


@pytest.mark.parametrize("name", OF_TENANTS)
def test_what_is_another_tenants_is_answered_as_what_does_not_exist(
    world: World, name: str
) -> None:
    about = WALK[name].about
    id = world.kept(about)
    before = world.ask(LOOKS[about], "alice", id).text
    foreign = world.seen(name, "mallory", id)
    assert foreign == world.seen(name, "mallory", NOWHERE[about])
    assert foreign[0] == 404
    assert world.ask(LOOKS[about], "alice", id).text == before


def is_theirs(who: str, about: str) -> bool:
    """Returns True if the caller may see the object of an id."""
    operable = {"alice", "operator", "admin"}
    whose = {"tenant": {"admin"}, "file": {"alice"}, "response": {"alice"}}
    whose |= dict.fromkeys(("job", "batch", "messages", "call"), operable)
    return who in whose.get(about, {who})


@pytest.mark.parametrize("name", SECURED)
@pytest.mark.parametrize("who", ["alice", "mallory", "operator", "admin"])
def test_each_gets_what_its_role_allows(world: World, name: str, who: str) -> None:
    way = WALK[name]
    roles: dict[str, Role] = {"operator": "operator", "admin": "admin"}
    allowed = way.scope in ROLES[roles.get(who, "tenant")]
    id = world.made(way.about) if allowed else world.kept(way.about)
    found = world.ask(name, who, id)
    if not allowed:
        assert found.status_code == 403
    elif not is_theirs(who, way.about):
        assert found.status_code == 404
    elif way.own and who != "alice":
        assert found.status_code == 403
    else:
        assert found.status_code == way.status, found.text
        assert re.fullmatch("req_[0-9a-z]{26}", found.headers["x-request-id"])


def test_lists_name_what_is_ones_own(world: World) -> None:
    id = world.made("job")
    own = world.ask("GET /jobs", "alice").text
    assert id in own
    assert id not in world.ask("GET /jobs", "mallory").text
    assert "alice" not in world.ask("GET /jobs", "mallory").text


@pytest.mark.parametrize("name", ["POST /jobs", "POST /infer", "POST /v1/embeddings"])
def test_two_tenants_may_use_the_same_idempotency_key(world: World, name: str) -> None:
    """Neither learns that the other did: another body under it is no conflict."""
    key = f'"{ids.new()}"'
    path, more = name.split()[1], WALK[name].more
    for who, value in (("alice", "first"), ("mallory", "second")):
        body = {**more["json"], **({"input": value} if "input" in more["json"] else {})}
        if "items" in body:
            body["items"] = [value]
        headers = {"Authorization": f"Bearer {world.keys[who]}", "Idempotency-Key": key}
        found = world.http.post(path, json=body, headers=headers)
        assert found.status_code == WALK[name].status, found.text
        assert "idempotency-replayed" not in found.headers
