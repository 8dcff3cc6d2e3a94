"""Trouble of devices, lanes, a database, a receiver and workers, found by alert, dashboard and
`millrace why`."""

import json
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import text

from jobs.explain.rules.load import LAZY_LAG_S
from ops.supervisor.platform import Platform
from tests.acceptance.telemetry.why import scenes
from tests.acceptance.telemetry.why.scenes import (
    FOUND_WITHIN_S,
    LONG,
    LOOK_S,
    SHORT,
    TROUBLES,
    Scene,
    explained,
    staged,
)
from tests.support.children import stopped
from tests.support.models.entries import function
from tests.support.platforms import Platforms
from tests.support.servers.prometheus import MISSING, installed
from tests.support.servers.receiver import Received, Reply, receiving
from tests.support.servers.upstream import Answer, held_for, serving
from tests.support.wait import Deadline, eventually, pause

pytestmark = pytest.mark.nightly


@pytest.fixture(scope="module")
def scene(platforms: Platforms, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with serving() as upstream:

        def embed(request: Received) -> Answer:
            held_for(scenes.TAKES_S[request.path], upstream)
            count = len(json.loads(request.body)["input"])
            return Answer({"data": [{"index": n, "embedding": [0.5]} for n in range(count)]})

        upstream.answer = embed
        models = scenes.MODELS.replace("URL", upstream.url)
        with staged(platforms, tmp_path_factory.mktemp("why"), models) as made:
            yield made


def test_prometheus_is_there_to_raise_alerts() -> None:
    if not installed():
        pytest.skip(MISSING)


def test_a_system_that_does_what_it_should_has_no_diagnoses(scene: Scene) -> None:
    with scene.called("bob", lambda n: {"model": "echo", "input": "x"}, callers=2, pause_s=0.1):
        assert eventually(lambda: scene.why() == [], FOUND_WITHIN_S, LOOK_S)
    assert "no findings" in scene.by_command()


def test_cpus_are_idle_and_devices_saturated(scene: Scene) -> None:
    body = {"model": "saturated", "input": "x", "timeout_ms": 3000}
    with scene.called("bob", lambda n: body, callers=16):
        found = explained(scene, TROUBLES["device"])
        # a tenant is told too
        eventually(lambda: "device_saturated" in scene.by_command("saturated", who="bob"))
    is_idle = found["evidence"]["loop_lag_s"] < LAZY_LAG_S  # other programs may use the CPUs
    words = "the api's CPUs have time to spare" if is_idle else "the api is busy too"
    assert words in found["words"]


def test_devices_are_idle_and_p99_rises_since_lanes_are_many(scene: Scene) -> None:
    """Each of 14 callers has parameters of its own, and all call at once, now and then."""
    together = threading.Barrier(14)

    def body(n: int) -> dict[str, Any]:
        with suppress(threading.BrokenBarrierError):
            together.wait()
        return {"model": "scattered", "input": SHORT, "params": {"dimensions": 1 + n}}

    with scene.called("bob", body, callers=14, pause_s=0.3):
        try:
            explained(scene, TROUBLES["lanes"])
        finally:
            together.abort()


def test_one_tenants_burst_of_long_texts_is_what_others_wait_for(scene: Scene) -> None:
    """alice sends a text after every four answers to bob, however long they take."""
    with scene.called("bob", lambda n: {"model": "lengthy", "input": SHORT}, callers=4) as answers:

        def long(n: int) -> dict[str, Any]:
            before = len(answers)
            eventually(lambda: len(answers) >= before + 4, FOUND_WITHIN_S)
            return {"model": "lengthy", "input": LONG}

        with scene.called("alice", long, callers=1):
            explained(scene, TROUBLES["long"])
            assert "alice" not in scene.by_command("lengthy", who="bob")
            eventually(lambda: "alice" in scene.by_command("lengthy"))


def test_one_lane_has_most_of_the_waiting(scene: Scene) -> None:
    hot = {"model": "crowded", "input": SHORT}

    def cold(n: int) -> dict[str, Any]:
        return hot | {"params": {"dimensions": 1 + n}}

    with (
        scene.called("bob", lambda n: hot, callers=12),
        scene.called("bob", cold, callers=2, pause_s=0.5),
    ):
        explained(scene, TROUBLES["hot"])


def test_a_call_is_explained_to_its_tenant_and_to_operators(scene: Scene) -> None:
    with scene.client("alice") as alice, scene.client("bob") as bob:
        body = {"model": "echo", "input": "x"}
        id = eventually(lambda: _recorded_call(alice, body))
        assert bob.get(f"/calls/{id}").status_code == 404
        refused = alice.post("/infer", json=body | {"model": "lengthy", "timeout_ms": 1})
        failed = refused.json()["call_id"]
        kept = eventually(lambda: alice.get(f"/calls/{failed}").is_success and alice)
        assert kept
    said = scene.by_command(id, who="alice")
    assert "call_in_time" in said
    assert "ms in its lane" in said
    assert refused.json()["code"] in scene.by_command(failed)
    assert "call_in_time" in scene.by_command(id)


def _recorded_call(client: httpx.Client, body: dict[str, Any]) -> str | None:
    """Makes a call, and returns its id unless its record was left out: after many calls, few are
    recorded for a while."""
    id = str(client.post("/infer", json=body).raise_for_status().json()["id"])
    deadline = Deadline(5)
    while not (found := client.get(f"/calls/{id}").is_success) and not deadline.is_over():
        pause(0.1)
    return id if found else None


def test_an_item_tells_where_all_of_its_time_went(scene: Scene) -> None:
    with scene.client("alice") as alice:
        job, item = eventually(lambda: _item_that_waited_in_its_lane(scene, alice))
        timing = dict(item["timing"])
    whole_ms, lane_ms = timing.pop("total_ms"), timing.pop("wait_ms")
    assert None not in timing.values()
    assert sum(timing.values()) == pytest.approx(whole_ms, abs=50)  # two machines' clocks
    assert timing["queue_ms"] + timing["batch_ms"] == pytest.approx(lane_ms, abs=0.01)
    assert timing["engine_ms"] >= 99
    assert lane_ms >= 250  # three launches before its own
    assert item["why"][0]["code"] == "waiting_for_device"
    assert "in its lane" in scene.by_command(job, "3", who="alice")
    assert "it ended as completed" in scene.by_command(job)


def _item_that_waited_in_its_lane(scene: Scene, client: httpx.Client) -> tuple[str, Any] | None:
    """Runs a job of four launches, and returns its last item if that spent half of its time in its
    lane: on a busy machine it also waits for a worker, in preprocessing and for its record."""
    order = {"model": "saturated", "items": ["a", "b", "c", "d"]}
    job = client.post("/jobs", json=order).raise_for_status().json()["id"]
    scene.by_command(job, who="alice")
    eventually(lambda: client.get(f"/jobs/{job}").json()["state"] == "completed", FOUND_WITHIN_S)
    item = client.get(f"/jobs/{job}/items/3").raise_for_status().json()
    timing = item["timing"]
    return (job, item) if timing["queue_ms"] >= timing["total_ms"] / 2 else None


def test_a_receiver_of_webhooks_is_slow(scene: Scene) -> None:
    done = threading.Event()

    def slowly(request: Received) -> Reply:
        done.wait(3.0)
        return Reply()

    def submit() -> None:
        order = {"model": "echo", "items": ["x"], "webhook": {"url": receiver.url}}
        with scene.client("alice") as http:
            for _ in range(12):
                http.post("/jobs", json=order).raise_for_status()
            while not done.wait(0.5):
                http.post("/jobs", json=order).raise_for_status()

    with receiving() as receiver:
        receiver.reply = slowly
        submitting = threading.Thread(target=submit)
        submitting.start()
        try:
            explained(scene, TROUBLES["receiver"])
        finally:
            done.set()
            submitting.join()


def test_the_database_stalls_since_somebody_locks_a_table(scene: Scene) -> None:
    with scene.database.begin() as tx:
        tx.execute(text("LOCK TABLE slices"))
        holder = tx.scalar(text("SELECT pg_backend_pid()"))
        http = scene.client("alice")
        order = {"model": "echo", "items": ["x"]}
        waiting = threading.Thread(target=lambda: http.post("/jobs", json=order))
        waiting.start()
        tx.execute(text("SET LOCAL idle_in_transaction_session_timeout = 0"))
        found = explained(scene, TROUBLES["lock"])
        assert f"process {holder} " in found["words"]
    waiting.join()
    http.close()


def test_the_database_stalls_since_its_processes_are_stopped(scene: Scene) -> None:
    with stopped(*postgres_processes(scene.platform)):
        explained(scene, TROUBLES["stopped"])
    assert eventually(lambda: "database_stalls" not in {one["code"] for one in scene.why()})


def test_workers_die(platforms: Platforms, tmp_path: Path) -> None:
    with (
        staged(platforms, tmp_path, function("broken:deadly")) as scene,
        scene.client("alice") as http,
    ):
        order = {"model": "deadly", "items": ["exit"] * 20}
        job = http.post("/jobs", json=order).raise_for_status().json()["id"]
        eventually(lambda: has_died(scene, 3), FOUND_WITHIN_S)
        explained(scene, TROUBLES["deaths"], "no_worker")
        assert "suspect_slices" in scene.by_command(job, who="alice")


def has_died(scene: Scene, times: int) -> bool:
    """Keeps the platform going meanwhile, as `millrace up` does."""
    scene.platform.poll()
    with scene.database.begin() as tx:
        return int(tx.scalar(text("SELECT count(*) FROM workers WHERE died IS NOT NULL"))) >= times


def postgres_processes(platform: Platform) -> list[int]:
    """The platform's server and its children."""
    server = platform.servers.postgres.process
    assert server
    children = Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text().split()
    return [server.pid, *map(int, children)]
