"""Every operation of /openapi.json, asked with every kind of credential: each gets what is due, and
what is another tenant's is answered as what doesn't exist."""

import re
from collections.abc import Iterator
from itertools import chain, product
from operator import attrgetter
from typing import Any

import httpx
import pytest
from sqlalchemy import text

from jobs import ids
from jobs.identity import ROLES, SCOPES, Role, Scope
from jobs.states import TERMINAL
from jobs.store import db
from jobs.store.jobs import responses
from jobs.store.jobs.responses import NewResponse
from ops.supervisor.platform import Platform
from tests.support.cases import each
from tests.support.keys import make_key
from tests.support.platforms import CLOSED
from tests.support.wait import eventually

Answer = tuple[int, dict[str, str], str]

PLATFORM = CLOSED

BY_PATH: dict[Scope, tuple[str, ...]] = {
    "admin": ("/admin/models", "/audit", "/keys", "/tenants"),
    "operate": ("/admin/pools", "/history", "/metrics", "/rollouts", "/why", "/workers"),
}
INFER = (
    "GET /calls/{call_id}/stream", "POST /calls/{call_id}/cancel", "POST /infer",
    "POST /v1/chat/completions", "POST /v1/completions", "POST /v1/embeddings", "POST /v1/messages",
    "POST /v1/messages/count_tokens", "POST /v1/responses", "POST /v1/responses/input_tokens",
    "POST /v2/models/{model}/infer", "POST /v2/models/{model}/versions/{version}/infer",
    "POST /v1/rerank", "POST /rerank", "POST /v2/rerank", "POST /v1/score", "POST /score",
    "POST /tokenize", "POST /detokenize", "POST /invocations",
    "POST /v1/chat/completions/batch",
)  # fmt: skip
OPEN = (
    "GET /livez", "GET /readyz", "GET /health", "GET /ping", "POST /ping", "GET /version",
    "GET /v2/health/live", "GET /v2/health/ready",
)  # fmt: skip
SCOPES_OF_THEIR_OWN: dict[str, Scope | None] = {
    "GET /tenants/{tenant}/limits": "read",
    "GET /webhooks/secret": "submit",
    "POST /v2/repository/index": "read",
    **dict.fromkeys(INFER, "infer"),
    **dict.fromkeys(OPEN, None),
}
"""All others go by their path, else need `read` to get and `submit` to change."""

THEIRS = {
    "job_id": "job", "file_id": "file", "batch_id": "batch", "message_batch_id": "msgbatch",
    "response_id": "resp", "call_id": "call", "conversation_id": "conv",
}  # fmt: skip
"""Parameters of paths that are ids, of what tenants make and alone may see, and their prefixes."""
IDS = {**THEIRS, "key_id": "key", "tenant": "tenant"}
ERASURE = "GET /tenants/{tenant}/erasure"
THERE = {"model": "echo", "seq": "0", "version": "1", "alias": "stable", "item_id": "msg_1"}
ABSENT = {"name": "absent", "named": "absent", "pool": "absent", "worker_id": "4711"}
"""Parameters that name nothing: the answer is 404."""
OWN_ALONE = ("POST /jobs/{job_id}/resubmit",)
"""For what is of the caller's tenant, though others may see it."""

STATUSES = {
    "GET /calls/{call_id}/stream": 404,  # of one that is no stream
    "POST /calls/{call_id}/cancel": 404,  # of one that has ended
    "POST /rollouts": 422,  # to no version that is there
    "POST /admin/models": 422,
    "POST /admin/models/apply": 422,
    "POST /v1/batches/{batch_id}/cancel": 409,  # of one that ended
    "POST /v1/responses/{response_id}/cancel": 400,  # of a call
    "POST /v1/messages/batches": 400,  # of no model that generates, as all below
    "POST /v1/messages": 400,
    "POST /v1/messages/count_tokens": 400,
    "POST /v1/chat/completions": 400,
    "POST /v1/completions": 400,
    "POST /invocations": 400,
    "POST /v1/chat/completions/batch": 400,
    "POST /v1/responses": 400,
    "POST /v1/responses/input_tokens": 400,
    "POST /v1/rerank": 400,  # of no model that scores pairs, as all below
    "POST /rerank": 400,
    "POST /v2/rerank": 400,
    "POST /v1/score": 400,
    "POST /score": 400,
    "POST /tokenize": 400,
    "POST /detokenize": 400,
}
"""To who may ask, where that isn't the first good one of the document."""

TENSORS = {"inputs": [{"name": "text", "shape": [1], "datatype": "BYTES", "data": ["x"]}]}
WEBHOOK = {"url": "http://127.0.0.1:9/"}
MESSAGE = {"model": "echo", "max_tokens": 1, "messages": [{"role": "user", "content": "x"}]}
BATCH = {"endpoint": "/v1/embeddings", "completion_window": "1h"}
BODIES: dict[str, Any] = {
    "POST /v1/conversations": {},
    "POST /infer": {"model": "echo", "input": "x"},
    "POST /v1/embeddings": {"model": "minilm", "input": "x"},
    "POST /jobs": {"model": "echo", "items": ["x"], "webhook": WEBHOOK},
    "POST /jobs/{job_id}/resubmit": {},
    "PUT /webhooks/endpoint": {"url": None},
    "POST /admin/models/apply": {"models": []},
    "POST /v1/batches": {**BATCH, "input_file_id": "file_01aryz6s41tsv4rrffq69g5fav"},
    "POST /v1/messages/batches": {"requests": [{"custom_id": "a", "params": MESSAGE}]},
    "POST /v2/models/{model}/infer": TENSORS,
    "POST /v2/models/{model}/versions/{version}/infer": TENSORS,
}
"""In place of the document's examples, which name other models, or addresses elsewhere."""
FORM = {"files": {"file": ("a.jsonl", b"{}")}, "data": {"purpose": "batch"}}


class Operation:
    """One of the document, and how it is asked for.

    scope: what a credential needs for it, None: nothing at all; status: of the answer to who may;
    about: what the id in its path is of."""

    def __init__(self, method: str, path: str, found: dict[str, Any], schemas: Any) -> None:
        self.name, self.method, self.path = f"{method} {path}", method, path
        parameters = re.findall(r"\{(\w+)\}", path)
        [self.about] = [IDS[one] for one in parameters if one in IDS] or [""]
        good = next(int(status) for status in found["responses"] if status.startswith("2"))
        self.status = 404 if ABSENT.keys() & {*parameters} else STATUSES.get(self.name, good)
        by_path: list[Scope] = [s for s, paths in BY_PATH.items() if any(map(self.is_below, paths))]
        by_method: Scope = "read" if method == "GET" else "submit"
        self.scope = SCOPES_OF_THEIR_OWN.get(self.name, next(iter(by_path), by_method))
        self.sent = self._sent(found.get("requestBody", {}).get("content", {}), schemas)

    def is_below(self, path: str) -> bool:
        return f"{self.path}/".startswith(f"{path}/")

    def _sent(self, content: dict[str, Any], schemas: Any) -> dict[str, Any]:
        """Arguments of the request: a body, if it takes one."""
        if self.name in BODIES:
            return {"json": BODIES[self.name]}
        if "multipart/form-data" in content:
            return FORM
        schema = content.get("application/json", {}).get("schema", {})
        named = schemas.get(schema.get("$ref", "").rpartition("/")[2], schema)
        body = dict(next(iter(named.get("examples", ())), {}))
        return {"json": body | {"model": "echo"} if "model" in body else body} if body else {}


class World:
    """A platform with the keys of several tenants, and of others that are no good."""

    def __init__(self, platform: Platform) -> None:
        self._kept: dict[str, str] = {}
        self.http = httpx.Client(base_url=platform.url)
        document = self.http.get("/openapi.json").json()
        found = [
            Operation(method.upper(), path, operation, document["components"]["schemas"])
            for path, methods in document["paths"].items()
            for method, operation in methods.items()
        ]
        self.operations = {operation.name: operation for operation in found}
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
        secret, id = make_key(self.database, tenant, role=role, **more)
        if ending:
            with self.database.begin() as tx:
                end = text(f"UPDATE api_keys SET {ending} WHERE id = :id")
                tx.execute(end, {"id": ids.parse("key", id)})
        return secret

    def ask(self, name: str, who: str | None, id: str = "") -> httpx.Response:
        """who: one of `keys`, or None for no credential."""
        one = self.operations[name]
        path = one.path.format_map({**THERE, **ABSENT, **dict.fromkeys(IDS, id)})
        headers = {"Authorization": f"Bearer {self.keys[who]}"} if who else {}
        return self.http.request(one.method, path, headers=headers, **one.sent)

    def seen(self, name: str, who: str | None, id: str = "") -> Answer:
        """The answer, but for what differs between any two requests: their ids, and the id that
        was asked for."""
        found = self.ask(name, who, id)
        body = found.text
        for value in filter(None, (id, found.headers["x-request-id"])):
            body = body.replace(value, "ID")
        once = ["date", "x-request-id", "request-id"]
        if self.operations[name].about == "tenant":  # a name may be longer than another one
            once.append("content-length")
        return found.status_code, {k: v for k, v in found.headers.items() if k not in once}, body

    def kept(self, one: Operation) -> str:
        """The id of something of Alice's that is there all the time."""
        kind = ERASURE if one.name == ERASURE else one.about
        if kind not in self._kept:
            self._kept[kind] = self.made(one)
        return self._kept[kind]

    def made(self, one: Operation) -> str:
        if not one.about:
            return ""
        made: str = getattr(self, f"_{one.about}")()
        if one.name == ERASURE:
            assert self.ask("DELETE /tenants/{tenant}", "admin", made).status_code == 202
        return made

    def _tenant(self) -> str:
        name = f"tenant-{ids.new().hex}"
        self.key(name)
        return name

    def _key(self) -> str:
        return make_key(self.database, "alice")[1]

    def _file(self) -> str:
        return str(self.ask("POST /v1/files", "alice").json()["id"])

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
        asked = {**BATCH, "input_file_id": self._file()}
        headers = {"Authorization": f"Bearer {self.keys['alice']}"}
        id: str = self.http.post("/v1/batches", json=asked, headers=headers).json()["id"]
        self._await(id)
        return id

    def _msgbatch(self) -> str:
        """Makes a messages batch out of a job: none of the samples converses."""
        job = self._job()
        with self.database.begin() as tx:
            become = "UPDATE jobs SET dialect = 'anthropic', asked = '{}' WHERE id = :id"
            tx.execute(text(become), {"id": ids.parse("job", job)})
        return job.replace("job_", "msgbatch_")

    def _resp(self) -> str:
        """Stores a response: none of the samples generates."""
        id, ended = ids.new(), b'{"status":"completed","output":[]}'
        with self.database.begin() as tx:
            responses.store(tx, NewResponse(id, "alice", None, b"{}", b"[]", ended), 1.0)
        return ids.show("resp", id)

    def _conv(self) -> str:
        """Makes a conversation of an item whose id is known."""
        said = {"id": THERE["item_id"], "role": "user", "content": "x"}
        headers = {"Authorization": f"Bearer {self.keys['alice']}"}
        asked = {"items": [said]}
        return str(self.http.post("/v1/conversations", json=asked, headers=headers).json()["id"])

    def _await(self, job: str) -> None:
        look = "GET /jobs/{job_id}"
        eventually(lambda: self.ask(look, "alice", job).json()["state"] in TERMINAL)


@pytest.fixture(scope="module")
def world(platform: Platform) -> Iterator[World]:
    made = World(platform)
    yield made
    made.close()


@pytest.fixture(scope="module")
def secured(world: World) -> list[Operation]:
    return [one for one in world.operations.values() if one.scope]


def nowhere(about: str) -> str:
    return "nobody" if about == "tenant" else f"{about}_01aryz6s41tsv4rrffq69g5fav"


def test_every_exception_is_of_an_operation(world: World) -> None:
    operations = world.operations.values()
    named = {*SCOPES_OF_THEIR_OWN, *STATUSES, *BODIES, *OWN_ALONE, ERASURE}
    assert named <= world.operations.keys()
    used = re.findall(r"\{(\w+)\}", "".join(one.path for one in operations))
    assert {*IDS, *THERE, *ABSENT} == {*used}
    prefixes = chain.from_iterable(BY_PATH.values())
    assert [path for path in prefixes if not any(one.is_below(path) for one in operations)] == []


def test_what_needs_no_credential_is_answered_to_all_alike(world: World) -> None:
    for name, case in each([one.name for one in world.operations.values() if not one.scope]):
        with case:
            answers = [world.seen(name, who) for who in (None, "alice", "revoked", "admin")]
            assert answers == [answers[0]] * 4
            assert answers[0][0] == 200


def test_without_a_good_key_nobody_gets_in(world: World, secured: list[Operation]) -> None:
    for one, case in each(secured, name=attrgetter("name")):
        with case:
            id = world.kept(one)
            places = [id, nowhere(one.about)] if id else [""]
            for who in (None, "unknown", "malformed", "expired", "revoked"):
                answers = [world.seen(one.name, who, place) for place in places]
                assert (answers[0][0], answers[0][1]["www-authenticate"]) == (401, "Bearer")
                # Nothing says that the key was ever good, nor that the id is there.
                expected = world.seen(one.name, who and "unknown", id)
                assert answers == [expected] * len(places), who


def test_a_key_without_the_scope_gets_nothing(world: World, secured: list[Operation]) -> None:
    for one, case in each(secured, name=attrgetter("name")):
        with case:
            id, who = world.kept(one), f"not {one.scope}"
            found = world.seen(one.name, who, id)
            assert found[0] == 403
            assert "insufficient_scope" in found[1]["www-authenticate"]
            assert f"lacks the scope {one.scope}" in found[2]
            assert not id or world.seen(one.name, who, nowhere(one.about)) == found


def test_what_is_another_tenants_is_answered_as_what_does_not_exist(
    world: World, secured: list[Operation]
) -> None:
    gets = [one for one in secured if one.method == "GET" and one.path.endswith("_id}")]
    looks = {one.about: one.name for one in gets}
    theirs = [one for one in secured if one.about in THEIRS.values()]
    for one, case in each(theirs, name=attrgetter("name")):
        with case:
            id = world.kept(one)
            before = world.ask(looks[one.about], "alice", id).text
            foreign = world.seen(one.name, "mallory", id)
            assert foreign == world.seen(one.name, "mallory", nowhere(one.about))
            assert foreign[0] == 404
            assert world.ask(looks[one.about], "alice", id).text == before


def may_see(who: str, about: str) -> bool:
    """Returns True if the caller may see the object of an id: operators see all that tenants make,
    but for what they sent and were answered."""
    if about in ("file", "resp", "conv"):
        return who == "alice"
    if about == "tenant":
        return who == "admin"
    return who != "mallory" or about not in THEIRS.values()


def test_each_gets_what_its_role_allows(world: World, secured: list[Operation]) -> None:
    roles: dict[str, Role] = {
        "alice": "tenant", "mallory": "tenant", "operator": "operator", "admin": "admin"
    }  # fmt: skip
    asked = product(secured, roles)
    for (one, who), case in each(asked, name=lambda pair: f"{pair[0].name} of {pair[1]}"):
        with case:
            if one.scope not in ROLES[roles[who]]:
                status = 403
            elif not may_see(who, one.about):
                status = 404
            else:
                status = 403 if one.name in OWN_ALONE and who != "alice" else one.status
            changes = status == one.status < 300 and one.method != "GET"
            found = world.ask(one.name, who, world.made(one) if changes else world.kept(one))
            assert found.status_code == status, found.text
            assert re.fullmatch("req_[0-9a-z]{26}", found.headers["x-request-id"])


def test_lists_name_what_is_ones_own(world: World) -> None:
    id = world.made(world.operations["GET /jobs/{job_id}"])
    assert id in world.ask("GET /jobs", "alice").text
    others = world.ask("GET /jobs", "mallory").text
    assert id not in others
    assert "alice" not in others


def test_two_tenants_may_use_the_same_idempotency_key(world: World) -> None:
    """Neither learns that the other did: another body under it is no conflict."""
    for name, case in each(["POST /jobs", "POST /infer", "POST /v1/embeddings"]):
        with case:
            key, one = f'"{ids.new()}"', world.operations[name]
            for who, value in (("alice", "first"), ("mallory", "second")):
                body = one.sent["json"]
                body = {**body, **({"items": [value]} if "items" in body else {"input": value})}
                headers = {"Authorization": f"Bearer {world.keys[who]}", "Idempotency-Key": key}
                found = world.http.post(one.path, json=body, headers=headers)
                assert found.status_code == one.status, found.text
                assert "idempotency-replayed" not in found.headers
