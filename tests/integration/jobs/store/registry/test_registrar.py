"""Changes of the registry: what is refused, what is recorded, what followers are told."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from queue import Queue
from typing import Any

import psycopg
import pytest
from sqlalchemy import Engine
from sqlalchemy.exc import DatabaseError

from jobs.errors import Conflict, Invalid, NotFound
from jobs.models import models_file, registered
from jobs.models.builtin_models import SAMPLES
from jobs.models.probe import Probe
from jobs.models.registered import Registered, union
from jobs.models.registry import Registry
from jobs.models.routing.route import Route, Share
from jobs.store import db
from jobs.store.registry import aliases, artifacts, follower, snapshot, versions
from jobs.store.registry.follower import RegistryFollower
from jobs.store.tenancy import EVERYBODY, acting
from jobs.store.tenants import audit
from jobs.usecases.registry.registrar import Registrar
from jobs.usecases.submit import Order, submit
from tests.support.cases import each
from tests.support.command_line import run_millrace
from tests.support.stores.store import claim, settle
from tests.support.stores.transactions import connected, execute, transact
from tests.support.wait import PATIENCE_S, eventually

DIGEST = f"sha256:{'a' * 64}"
ENTRY = {"engine": "echo", "target_ms": 40}


@pytest.fixture
def registrar(api: Engine) -> Iterator[Registrar]:
    """Changes of the api's role, in one transaction that commits."""
    with acting(api, EVERYBODY) as tx:
        yield Registrar(tx, SAMPLES, "key_1", partial(record, tx))


def record(tx: db.Tx, act: str, target: str, tenant: str, /, **detail: Any) -> None:
    entry: dict[str, Any] = {"act": act, "target": target, "tenant": tenant, "detail": detail}
    audit.record(tx, actor="key_1", request_id="req_1", **entry)


def push(database: Engine, version: str) -> None:
    with database.begin() as tx:
        Registrar(tx, SAMPLES, "cli", partial(record, tx)).push("echo", version, ENTRY)


def acts(registrar: Registrar) -> list[tuple[str, str]]:
    found = audit.page(registrar.tx, EVERYBODY, after=None, limit=99)
    return [(one.act, one.target) for one in reversed(found)]


def test_a_version_never_changes_but_for_its_price(registrar: Registrar) -> None:
    assert registrar.push("echo", "2", ENTRY) == "added"
    assert registrar.push("echo", "2", ENTRY) == "unchanged"
    assert registrar.push("echo", "2", ENTRY | {"price": {"per_item": 0.001}}) == "changed"
    with pytest.raises(Conflict, match=r"echo@2 is registered with other values of target_ms"):
        registrar.push("echo", "2", ENTRY | {"target_ms": 41})
    with pytest.raises(Invalid, match="there is no artifact"):
        registrar.push("echo", "2", ENTRY, DIGEST)
    assert acts(registrar) == [("model.push", "echo@2"), ("model.change", "echo@2")]
    row = versions.get(registrar.tx, "echo", "2")
    assert row
    assert json.loads(row.entry)["price"] == {"per_item": 0.001}


def test_the_database_itself_refuses_a_changed_version(database: Engine) -> None:
    transact(database, artifacts.add, DIGEST, "{}", 1, "cli")
    push(database, "2")
    entry = '{"engine": "echo", "target_ms": 41}'
    changes = [("entry", entry), ("version", "3"), ("created_by", "x"), ("artifact", DIGEST)]
    for (column, value), case in each(changes):
        with case, pytest.raises(DatabaseError, match="a version never changes"):
            execute(database, f"UPDATE model_versions SET {column} = :value", {"value": value})


def test_an_entry_is_checked_as_one_of_the_models_file(registrar: Registrar) -> None:
    refused = [
        ({"engine": "none"}, "no engine 'none'"),
        ({"engine": "echo", "target_ms": 0}, "target_ms"),
        ({"engine": "echo", "degrade": {"fallback": "x@1"}}, "'x@1' is not declared here"),
        ({"engine": "echo", "options": {"a": "\0"}}, "NUL"),
        ({"engine": "echo", "artifact": DIGEST}, "the registry alone sets it"),
    ]
    for (entry, says), case in each(refused):
        with case, pytest.raises(Invalid, match=says):
            registrar.push("echo", "2", entry)
    assert acts(registrar) == []


def test_versions_in_use_are_not_retired(registrar: Registrar) -> None:
    for version in ("2", "3", "4", "5"):
        registrar.push("echo", version, ENTRY)
    registrar.push("other", "1", ENTRY | {"degrade": {"fallback": "echo@5"}})
    registrar.set_alias("echo", "stable", "2")
    registrar.set_route(Route("echo", (Share("3", 100),), "acme", shadow=Share("4", 1)))
    for version, user in (
        ("2", "the alias 'stable'"), ("3", "the route of acme"), ("4", "the route of acme"),
        ("5", "the fallback of other@1"),
    ):  # fmt: skip
        with pytest.raises(Conflict, match=f"echo@{version} is used by {user}: change these first"):
            registrar.retire("echo", version)
    registrar.set_alias("echo", "stable", "5")
    assert registrar.retire("echo", "2") == "changed"
    assert registrar.retire("echo", "2") == "unchanged"
    assert "2" not in registrar.active("echo")
    assert registrar.push("echo", "2", ENTRY) == "activated"
    with pytest.raises(NotFound, match="the models file declares it, remove it there"):
        registrar.retire("echo", "1")


def test_known_answers_stay_while_their_version_is_active(registrar: Registrar) -> None:
    registrar.push("echo", "2", ENTRY)
    known, others = (Probe(["a"], [answer]).as_json() for answer in "ab")
    assert registrar.record_probe("echo", "2", '{"inputs": ["a"], "outputs": ["a"]}') == "added"
    assert registrar.record_probe("echo", "2", known) == "unchanged"
    assert registrar.push("echo", "2", ENTRY, probe=known) == "unchanged"
    with pytest.raises(Conflict, match="retire it first"):
        registrar.record_probe("echo", "2", others)
    with pytest.raises(DatabaseError, match="never changes"), registrar.tx.begin_nested():
        versions.set_probe(registrar.tx, "echo", "2", others)
    for wrong in ("{}", '{"inputs": [1], "outputs": []}', '{"inputs": [1], "x": 1}', "x"):
        with pytest.raises(Invalid, match="known answers can't be recorded"):
            registrar.record_probe("echo", "2", wrong)
    with pytest.raises(NotFound, match="the models file declares it, push it first"):
        registrar.record_probe("echo", "1", known)
    registrar.retire("echo", "2")
    assert registrar.record_probe("echo", "2", others) == "changed"
    assert registrar.push("echo", "2", ENTRY) == "activated"
    [held] = snapshot.read(registrar.tx).versions
    assert Probe.from_json(held.probe).outputs == ["b"]
    assert [act for act, _ in acts(registrar)].count("model.probe") == 2


def test_an_adapter_is_bound_to_its_base_and_never_changes(registrar: Registrar) -> None:
    encoder: dict[str, Any] = {"engine": "encoder"}
    registrar.push("base", "1", encoder)
    registrar.push("base", "2", encoder)
    other = f"sha256:{'b' * 64}"
    for digest, base in ((DIGEST, "base@1"), (other, "base@1"), (f"sha256:{'c' * 64}", "")):
        artifacts.add(registrar.tx, digest, "{}", 1, "cli", base)
    assert registrar.push_adapter("base@1", "legal", {"artifact": DIGEST}) == "changed"
    assert registrar.push_adapter("base@1", "legal", {"artifact": DIGEST}) == "unchanged"
    priced = {"artifact": DIGEST, "tenants": ["acme"]}
    assert registrar.push_adapter("base@1", "legal", priced) == "changed"
    with pytest.raises(Conflict, match="pushed as an adapter of base@1, not as a model"):
        registrar.push("base", "3", {"engine": "echo"}, DIGEST)
    refused = [
        ("base@2", "legal", DIGEST, "as an adapter of base@1, not as an adapter of base@2"),
        ("base@1", "tax", f"sha256:{'c' * 64}", "pushed as a model, not as an adapter of base@1"),
        ("base@1", "legal", other, "'legal' has other files: an adapter never changes"),
        ("base@1", "tax", "sha256:x", "must be the digest of an artifact"),
        ("base@7", "tax", other, "has no version base@7"),
    ]
    for (base, name, digest, says), case in each(refused):
        with case, pytest.raises((Conflict, Invalid, NotFound), match=says):
            registrar.push_adapter(base, name, {"artifact": digest})
    with pytest.raises(Invalid, match="its artifact has its files; leave path and sha256 out"):
        registrar.push_adapter("base@1", "tax", {"artifact": other, "path": "/x"})
    [first, _] = snapshot.read(registrar.tx).versions
    [adapter] = registered.parse(first).adapters
    assert (adapter.artifact, adapter.tenants, adapter.needs_staging) == (DIGEST, ("acme",), True)
    assert ("model.adapter", "base:legal@1") in acts(registrar)


def test_aliases_and_versions_are_told_apart(registrar: Registrar) -> None:
    registrar.push("echo", "v2", ENTRY)
    assert registrar.set_alias("echo", "stable", "1") == "added"  # of the models file
    assert registrar.set_alias("echo", "stable", "v2") == "changed"
    assert registrar.set_alias("echo", "stable", "v2") == "unchanged"
    with pytest.raises(Conflict, match="is a version: take another alias"):
        registrar.set_alias("echo", "v2", "1")
    with pytest.raises(Conflict, match="has an alias 'stable'"):
        registrar.push("echo", "stable", ENTRY)
    with pytest.raises(NotFound, match=r"no active version '9'; there are: 1, v2"):
        registrar.set_alias("echo", "stable", "9")
    with pytest.raises(Invalid, match="can't be an alias"):
        registrar.set_alias("echo", "a b", "1")
    registrar.remove_alias("echo", "stable")
    with pytest.raises(NotFound):
        registrar.remove_alias("echo", "stable")
    assert aliases.all_of(registrar.tx) == []
    assert [act for act, _ in acts(registrar)] == [
        "model.push", "model.alias", "model.alias", "model.unalias",
    ]  # fmt: skip


def test_a_route_keeps_its_salt_so_that_nobody_moves_without_need(registrar: Registrar) -> None:
    registrar.push("echo", "2", ENTRY)
    shares = Share("1", 95), Share("2", 5)
    first = registrar.set_route(Route("echo", shares, sticky="user"))
    raised = (Share("1", 90), Share("2", 10))
    assert first.salt
    assert registrar.set_route(Route("echo", raised, sticky="user")).salt == first.salt
    assert registrar.set_route(Route("echo", shares, "acme")).salt != first.salt
    with pytest.raises(Invalid, match="they must make 100"):
        registrar.set_route(Route("echo", (Share("1", 95),)))
    with pytest.raises(Invalid, match="no active version '7'"):
        registrar.set_route(Route("echo", (Share("7", 100),)))
    registrar.remove_route("echo", "acme")
    with pytest.raises(NotFound, match="no route of acme"):
        registrar.remove_route("echo", "acme")
    assert [act for act, _ in acts(registrar)].count("model.route") == 3


def test_a_models_file_is_applied_whole_and_only_once(registrar: Registrar, tmp_path: Path) -> None:
    path = tmp_path / "models.toml"
    path.write_text(
        '[[model]]\nname = "a"\nversion = "1"\nengine = "echo"\n'
        '[[model]]\nname = "a"\nversion = "2"\nengine = "echo"\n[model.price]\nper_item = 0.1\n'
    )
    entries = models_file.read_entries(path)
    assert registrar.apply(entries) == [("a@1", "added"), ("a@2", "added")]
    assert registrar.apply(entries) == [("a@1", "unchanged"), ("a@2", "unchanged")]
    held = snapshot.read(registrar.tx).versions
    assert [one.key for one in held] == ["a@1", "a@2"]  # also within one transaction


def test_each_change_is_announced_at_its_commit(database: Engine, database_url: str) -> None:
    changes = (
        lambda registrar: registrar.push("echo", "2", ENTRY),
        lambda registrar: registrar.set_alias("echo", "stable", "2"),
        lambda registrar: registrar.set_route(Route("echo", (Share("2", 100),))),
        lambda registrar: registrar.remove_route("echo", "*"),
        lambda registrar: registrar.remove_alias("echo", "stable"),
        lambda registrar: registrar.retire("echo", "2"),
    )
    with psycopg.connect(db.plain_url(database_url), autocommit=True) as listening:
        listening.execute(f"LISTEN {db.MODELS_CHANNEL}")
        for change in changes:
            with database.begin() as tx:
                change(Registrar(tx, Registry([]), "cli", partial(record, tx)))
                assert list(listening.notifies(timeout=0)) == []
            assert next(listening.notifies(timeout=60, stop_after=1))


def test_the_command_line_changes_the_registry_and_says_what_changed(
    database: Engine, database_url: str, tmp_path: Path
) -> None:
    def run(*words: str, status: int = 0) -> str:
        home = {"MILLRACE_HOME": str(tmp_path / "home"), "MILLRACE_DATABASE_URL": database_url}
        return run_millrace("models", *words, status=status, **home).output

    def runs_twice(words: Sequence[str], name: str) -> None:
        for done in ("added", "unchanged"):
            assert run(*words) == f"{name}  {done}\n"

    entry = ("--entry", json.dumps(ENTRY))
    runs_twice(["push", "--name", "echo", "--version", "2", *entry], "echo@2")
    assert run("alias", "echo", "stable", "2") == "echo@stable  added\n"
    assert "the alias 'stable'" in run("retire", "echo", "2", status=1)
    assert "echo@2  active  echo" in run("show", "echo")
    assert run("alias", "echo", "stable", "--remove") == "echo@stable  removed\n"
    assert run("retire", "echo", "2") == "echo@2  retired\n"
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "weights").write_text("1")
    files = str(tmp_path / "files")
    runs_twice(["push", files, "--name", "echo", "--version", "3", *entry], "echo@3")
    row = transact(database, versions.get, "echo", "3")
    assert row
    assert row.artifact
    assert transact(database, artifacts.get, row.artifact)
    (tmp_path / "inputs.jsonl").write_text('"a"\n{"input": [1, 0.5]}\n')
    record = ("probe", "record", "echo@3", "--input", str(tmp_path / "inputs.jsonl"))
    runs_twice(record, "echo@3")
    assert "which stay while it is active" in run(*record, "--tolerance", "0.1", status=1)
    assert "is no NAME@VERSION" in run("probe", "record", "echo", status=2)
    assert "push it first" in run("probe", "record", "echo@9", status=1)
    row = transact(database, versions.get, "echo", "3")
    assert row
    assert Probe.from_json(row.probe or "").outputs == ["a", [1, 0.5]]
    path = tmp_path / "models.toml"
    path.write_text('[[model]]\nname = "a"\nversion = "1"\nengine = "echo"\n')
    assert run("apply", str(path)) == "a@1  added\n"
    assert "a@1  active" in run("list")


# -- processes that follow: at once, over lost connections, and without a database


@contextmanager
def following(url: str, role: str) -> Iterator["Queue[Registered]"]:
    with connected(url, role) as engine:
        found = Queue[Registered]()
        follows = RegistryFollower(engine, url, found.put)
        follows.start()
        try:
            yield found
        finally:
            follows.stop()


def keys(found: "Queue[Registered]") -> list[str]:
    return [one.key for one in found.get(timeout=PATIENCE_S).versions]


@pytest.mark.parametrize("role", [db.API, db.WORKER])
def test_the_first_look_is_over_when_it_has_started_and_a_change_comes_by_notification(
    database: Engine, database_url: str, role: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follower, "LOOK_S", 3600)
    push(database, "2")
    with following(database_url, role) as found:
        assert keys(found) == ["echo@2"]
        push(database, "3")
        assert keys(found) == ["echo@2", "echo@3"]


def test_a_connection_that_broke_is_made_again(
    database: Engine, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follower, "LOOK_S", 3600)
    with following(database_url, db.API) as found:
        assert keys(found) == []
        execute(database, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                     "WHERE query = 'LISTEN millrace_models'")  # fmt: skip
        assert keys(found) == []  # notifications may have been missed
        push(database, "2")
        while keys(found) != ["echo@2"]:  # it may have looked twice while the connection broke
            pass


def test_without_a_database_it_starts_and_ends(caplog: pytest.LogCaptureFixture) -> None:
    with following("postgresql+psycopg://nobody@127.0.0.1:1/none", db.API) as found:
        eventually(lambda: "can't read the registry" in caplog.text)
        assert found.empty()


def test_a_retired_version_is_run_until_its_jobs_have_ended(database: Engine) -> None:
    push(database, "2")
    models = transact(database, snapshot.read)
    served = union(SAMPLES, models)
    submit(database, served, "acme", Order("echo@2"), array=["a"])
    with database.begin() as tx:
        Registrar(tx, SAMPLES, "cli", partial(record, tx)).retire("echo", "2")
    assert transact(database, snapshot.read) == Registered()
    held = transact(database, snapshot.read_with_unfinished)
    assert [one.key for one in held.unfinished] == ["echo@2"]
    settle(database, claim(database, model=served.resolve("echo@2")))
    assert transact(database, snapshot.read_with_unfinished) == Registered()
