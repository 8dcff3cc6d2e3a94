"""A model's page and a rollout's: what they show to whom, and what their buttons do."""

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from sqlalchemy import Engine

from api.dashboard.data import signatures
from api.gateway.routing.shadow import counts_key
from jobs.artifacts import bundle, folder
from jobs.calls.streams.rollout import append
from jobs.rollouts.records import LaunchRecord
from jobs.settings import Settings
from jobs.store import db
from jobs.store.registry import artifacts
from jobs.store.registry import rollouts as store
from jobs.store.tenancy import EVERYBODY, acting
from jobs.telemetry.reports import window
from jobs.telemetry.reports.reports import KEY, Report
from tests.integration.api.conftest import XSS, People
from tests.support import signing
from tests.support.wait import eventually
from workers.keeper.rollouts.controller import RolloutController

DIGEST = "sha256:" + "ab" * 32
POLICY = {"steps": [5, 50, 100], "min_launches": 200, "min_stay_s": 0}


class Models:
    """The registry, by HTTP."""

    def __init__(self, people: People) -> None:
        self._people = people

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        answer = self._people.send("admin", method, path, json=body)
        assert answer.is_success, answer.text
        return answer.json()

    def shown(self) -> Any:
        """Returns the model `m`."""
        return self.ask("GET", "/admin/models/m")

    def acts(self) -> set[str]:
        """Returns what the audit log has."""
        return {one["act"] for one in self.ask("GET", "/audit")["data"]}

    def push(self, version: str, **more: Any) -> None:
        entry = {"engine": "echo"}
        self.ask("POST", "/admin/models", {"name": "m", "version": version, "entry": entry, **more})

    def start(self) -> str:
        """Starts a rollout once this process knows both versions."""
        body = {"model": "m", "canary": "2", "stable": "1", "policy": POLICY}

        def started() -> Any:
            answer = self._people.send("admin", "POST", "/rollouts", json=body)
            return answer.is_success and answer.json()["id"]

        return str(eventually(started))


@pytest.fixture
def models(people: People) -> Models:
    made = Models(people)
    with acting(people.database, EVERYBODY) as tx:
        artifacts.add(tx, DIGEST, '{"files": []}', 0, "cli")
    made.push("1")
    made.push("2", artifact=DIGEST)
    return made


@pytest.fixture
def keeper(
    database: Engine, settings: Settings, redis_client: "redis.Redis"
) -> Iterator[Callable[[], None]]:
    """Looks at the rollouts once, and reports what it saw as a keeper's process does."""
    role = db.connect(settings.database_url, pool_size=2, role=db.WORKER)
    controller = RolloutController(settings, role)

    def look() -> None:
        controller.run_once()
        at = float(redis_client.time()[0])
        delta = window.WindowDelta(1.0, {}, {})
        report = Report("keeper_1", "keeper", at, delta, {"rollouts": controller.latest})
        redis_client.hset(KEY, "keeper_1", report.pack())

    yield look
    controller.close()
    role.dispose()


def launches(client: "redis.Redis", database: Engine, count: int) -> None:
    """Appends launches of both lanes: the canary costs a tenth more."""
    with acting(database, EVERYBODY) as tx:
        [row] = store.page(tx)
    rng = random.Random(2)
    for n in range(count):
        for lane, price in (("control", 1.0), ("canary", 1.1)):
            ms, price = rng.uniform(8, 12), price * rng.uniform(0.9, 1.1)
            failed = int(lane == "canary" and n % 50 == 0)
            one = LaunchRecord(0.0, lane, 2, failed, latency_ms=ms, device_ms=ms, price=price)  # type: ignore[arg-type]
            append(client, str(row.id), [one])


def test_a_models_page_shows_versions_aliases_routes_and_copies(
    people: People, models: Models, redis_client: "redis.Redis"
) -> None:
    models.ask("PUT", "/admin/models/m/aliases/stable", {"version": "1"})
    shares = [{"version": "1", "percent": 95.0}, {"version": "2", "percent": 5.0}]
    route = {"splits": shares, "sticky": "user", "shadow": {"version": "2", "percent": 10.0}}
    models.ask("PUT", "/admin/models/m/routes/acme", route)
    redis_client.hset(counts_key("m@2"), mapping={"1 equal": 940, "1 different": 2})

    # The api learns of the route by itself.
    page = eventually(lambda: ">940<" in (it := people.page("operator", "/models/m")) and it)
    for expected in (
        DIGEST, "unsigned", "set MILLRACE_TRUST", "m@stable", "Tenant acme", "sticky by user",
        "95 %", "10 % of the calls are copied for version 2", "millrace rollout start m VERSION",
    ):  # fmt: skip
        assert expected in page, expected
    assert "<button>Point" not in page  # that needs the scope admin
    [found] = models.shown()["routes"]
    assert found["shadow"]["copies"] == {"1": {"equal": 940, "different": 2}}


def test_known_answers_may_hold_integers_of_any_size(models: Models) -> None:
    probe = {"inputs": [2**80], "outputs": [0]}
    models.push("3", probe=probe)
    assert models.ask("PUT", "/admin/models/m/versions/1/probe", probe)["change"] == "added"
    found = models.ask("GET", "/admin/models/m/versions/1")
    assert found["probe"]["inputs"] == [2**80]


def test_admins_point_an_alias_and_retire_a_version_if_sure(people: People, models: Models) -> None:
    pointed = people.post("admin", "/models/m/aliases", alias="stable", version="2")
    assert pointed.headers["location"] == "/dashboard/models/m"
    assert models.shown()["aliases"] == {"stable": "2"}
    retire = "/models/m/versions/1/retire"
    assert "Retire the version" in people.page("admin", retire)
    assert people.post("admin", retire).status_code == 303
    states = {one["version"]: one["state"] for one in models.shown()["versions"]}
    assert states == {"1": "retired", "2": "active"}
    assert {"model.alias", "model.retire"} <= models.acts()
    refused = people.post("admin", "/models/m/versions/2/retire")
    assert refused.status_code == 409
    assert "the alias &#39;stable&#39;" in refused.text
    for who in ("operator", "acme"):
        assert people.post(who, "/models/m/aliases", alias="x", version="2").status_code == 403
        assert people.get(who, retire).status_code == 403
        assert people.post(who, retire).status_code == 403
    assert people.post("admin", "/models/m/aliases", token="x", alias="x").status_code == 403
    assert people.post("admin", "/models/m/aliases", alias=XSS, version="2").status_code == 422


def test_tenants_see_versions_and_nothing_of_the_registry(people: People, models: Models) -> None:
    page = eventually(lambda: (it := people.get("acme", "/models/m")).is_success and it.text)
    assert "m@1" in page
    assert DIGEST not in page
    assert people.get("acme", "/models/nothing").status_code == 404
    for path in ("/rollouts", "/rollouts/m"):
        assert people.get("acme", path).status_code == 403
    assert "/dashboard/rollouts" not in people.page("acme", "/models")


def test_a_rollouts_page_shows_lanes_evidence_costs_and_history(
    people: People, models: Models, redis_client: "redis.Redis", keeper: Callable[[], None]
) -> None:
    def shown() -> Any:
        """Reports are read once a second."""
        found = people.page("operator", "/rollouts/m")
        return "No figures yet" not in found and found

    assert "millrace rollout start MODEL VERSION" in people.page("operator", "/rollouts")
    id = models.start()
    empty = people.page("operator", f"/rollouts/{id}")
    assert "No figures yet" in empty
    assert "No keeper has reported" in empty
    launches(redis_client, people.database, 120)
    keeper()
    page = eventually(shown)
    for expected in (
        "Share with a failed call", "2.50% (", "Latency p50 / p95", "Price a call: +",
        "Held: price a call", "Resume", "Roll back", "all together", "keeper", "1 to 2, by key_",
    ):  # fmt: skip
        assert expected in page, expected
    assert id in people.page("operator", "/models/m")
    assert ">m</a>" in people.page("operator", "/rollouts")


def test_operators_hold_resume_and_roll_back_with_a_reason(people: People, models: Models) -> None:
    id = models.start()
    for verb, state in (("hold", "held"), ("resume", "running"), ("roll_back", "rolled_back")):
        done = people.post("operator", f"/rollouts/{id}/{verb}", reason=f"I {verb} {XSS}")
        assert done.headers["location"] == f"/dashboard/rollouts/{id}"
        assert models.ask("GET", f"/rollouts/{id}")["state"] == state
    page = people.page("operator", f"/rollouts/{id}")
    assert "I hold &lt;script&gt;" in page
    assert "<script>alert" not in page
    assert "formaction" not in page
    assert people.post("operator", f"/rollouts/{id}/hold").status_code == 409
    assert people.post("operator", f"/rollouts/{id}/nothing").status_code == 422
    assert people.post("acme", f"/rollouts/{id}/hold").status_code == 403
    assert people.get("operator", "/rollouts/nothing").status_code == 404
    assert {"rollout.hold", "rollout.resume", "rollout.roll_back"} <= models.acts()


@pytest.mark.parametrize(
    ("policy", "signs", "word", "kind", "why"),
    [
        ("require", True, "signed by release", "good", ""),
        ("require", False, "not verified", "bad", "the trust file doesn't have the key"),
        ("warn", False, "not verified", "warning", "it loads, the policy is warn"),
    ],
)
def test_a_signature_is_verified_by_the_trust_file_of_the_api(
    database: Engine, settings: Settings, tmp_path: Path, policy: str, signs: bool, word: str,
    kind: str, why: str,
) -> None:  # fmt: skip
    key = signing.make_key()
    trust = signing.write_trust(tmp_path / "trust", key if signs else signing.make_key(), policy)
    manifest = folder.read(signing.write_tree(tmp_path / "model", {"weights": b"some"}))
    with acting(database, EVERYBODY) as tx:
        artifacts.add(tx, manifest.digest, manifest.as_json(), manifest.size, "cli")
        artifacts.sign(tx, manifest.digest, bundle.sign(manifest, "m", key), "cli")
        found = signatures.verdict(tx, settings.evolve(trust=trust), manifest.digest)
    assert (found.word, found.kind) == (word, kind)
    assert why in found.why
