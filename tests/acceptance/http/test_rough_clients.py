"""Clients that stall, leave or overdo it, and what that costs the others."""

import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest
import redis

from jobs.calls.keys import Keys
from millrace import Client
from ops.supervisor.platform import Platform
from tests.support.children import child_of, pid_of, stopped
from tests.support.clients import infer, request_bytes, send
from tests.support.jobs import completed
from tests.support.models.entries import function
from tests.support.platforms import OPEN
from tests.support.wait import PATIENCE_S, eventually, slowdown

MODELS = function("broken:slow", limits={"slice_items": 10, "max_batch": 1}) + function(
    "broken:moody", limits={"max_batch": 64, "slice_items": 50}
)
PLATFORM = OPEN


def test_readers_that_stall_hold_up_nobody(
    platform: Platform, client: Client, http: httpx.Client
) -> None:
    job = client.jobs.submit("echo", ["x" * 2000] * 5000).id
    client.jobs.wait(job)
    get = f"GET /jobs/{job}/results HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
    with ExitStack() as stack:
        for _ in range(40):
            reader = stack.enter_context(send(platform, get))
            assert reader.recv(100).startswith(b"HTTP/1.1 200")
        for _ in range(5):
            assert http.get(f"/jobs/{job}").status_code == 200
    assert http.get("/readyz").status_code == 200


def test_a_client_that_leaves_takes_its_call_back(
    platform: Platform, client: Client, store: "redis.Redis", tmp_path: Path
) -> None:
    begun = tmp_path / "begun"
    client.jobs.submit("slow", [f"long {begun} 10"])
    eventually(begun.exists)
    body = b'{"model": "slow", "input": "y"}'
    call = request_bytes("/infer", {"Content-Type": "application/json"}, body)
    waiting = Keys("slow@1")("calls")
    with ExitStack() as stack:
        for _ in range(10):
            stack.enter_context(send(platform, call))
        eventually(lambda: store.hlen(waiting) >= 9)
    eventually(lambda: store.hlen(waiting) == 0)


@pytest.mark.nightly
def test_a_slow_model_holds_up_no_other(client: Client) -> None:
    slow = [client.jobs.submit("slow", ["x"]).id for _ in range(30)]
    eventually(lambda: client.jobs.get(slow[0])["state"] != "queued")  # it may have ended by now
    quick = client.jobs.submit("echo", ["x"]).id
    eventually(lambda: completed(client, quick))
    assert not completed(client, *slow)
    for job in slow:
        client.request("POST", f"/jobs/{job}/cancel")


def test_what_a_function_breaks_on_fails_alone_and_the_others_succeed(
    client: Client, http: httpx.Client
) -> None:
    texts = [f"t{n}" for n in range(200)]
    raises = {3: "raise", 9: "exit"}
    invalid = {60: "nan", 61: "nul", 120: "surrogate", 121: "object", 199: "short"}
    for seq, text in (raises | invalid).items():
        texts[seq] = text
    job = client.jobs.submit("moody", texts).id
    client.jobs.wait(job)
    found = list(client.jobs.results(job, wait=False))
    failed = {line["seq"]: line["error"]["code"] for line in found if line["error"]}
    assert failed == dict.fromkeys(raises, "engine_error") | dict.fromkeys(
        invalid, "invalid_output"
    )
    assert len(found) == 200
    assert all(line["output"] == texts[line["seq"]].upper() for line in found if not line["error"])
    answer = infer(http, "moody", "nan")
    assert (answer.status_code, answer.json()["errors"][0]["code"]) == (500, "invalid_output")


def test_a_line_without_an_end_is_refused_in_constant_memory(
    platform: Platform, http: httpx.Client
) -> None:
    def endless() -> Iterator[bytes]:
        for _ in range(200):
            yield b"x" * 1_000_000

    api = pid_of(platform, "api")
    before = peak_mb(api)
    headers = {"Content-Type": "application/x-ndjson"}
    answer = http.post("/jobs?model=echo", content=endless(), headers=headers)
    assert [(e["line"], e["code"]) for e in answer.json()["errors"]] == [(1, "too_long")]
    assert peak_mb(api) - before < 50


def peak_mb(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


@pytest.mark.parametrize("depth", [150, 201, 254, 300])
def test_an_input_is_served_or_refused_at_any_depth(http: httpx.Client, depth: int) -> None:
    value = "[" * depth + "]" * depth
    headers = {"Content-Type": "application/json"}
    call = f'{{"model": "echo", "input": {value}}}'
    status = http.post("/infer", content=call, headers=headers).status_code
    job = f'{{"model": "echo", "items": [{{"input": {value}}}]}}'
    posted = http.post("/jobs", content=job, headers=headers)
    assert (status, posted.status_code) == ((200, 202) if depth <= 200 else (422, 422))
    if depth <= 200:
        assert http.get(f"/jobs/{posted.json()['id']}/items/0").status_code == 200


def test_a_redis_that_hangs_costs_no_lease_and_no_deadline(
    platform: Platform, client: Client, http: httpx.Client
) -> None:
    job = client.jobs.submit("slow", ["x"] * 10).id
    eventually(lambda: client.jobs.get(job)["state"] != "queued")
    server = platform.servers.redis.process
    assert server is not None
    with stopped(server.pid):
        answer = infer(http, "echo", "x", timeout_ms=300)
        assert answer.status_code == 504
        assert answer.elapsed.total_seconds() < 10 * slowdown()
        eventually(lambda: completed(client, job))
    assert http.get(f"/jobs/{job}/items/9").json()["deliveries"] == 1
    eventually(lambda: infer(http, "echo", "x", timeout_ms=300).is_success)


def test_a_worker_that_drains_keeps_its_lease_until_its_launch_is_recorded(
    platform: Platform, client: Client, http: httpx.Client, tmp_path: Path
) -> None:
    file = tmp_path / "begun"
    job = client.jobs.submit("slow", [f"long {file}"]).id
    eventually(file.exists)  # items of cancelled jobs may run before
    worker = child_of(platform)
    worker.terminate()
    eventually(lambda: not worker.alive())
    item = http.get(f"/jobs/{job}/items/0").json()
    assert (item["outcome"], item["deliveries"]) == ("succeeded", 1)
    worker.start()
    eventually(lambda: http.get("/models/slow/ready").is_success)


def test_a_worker_that_is_stopped_while_it_loads_ends_well(
    platform: Platform, http: httpx.Client
) -> None:
    worker = child_of(platform)
    worker.terminate()
    eventually(lambda: not worker.alive())
    worker.start()
    assert worker.process is not None
    for _ in range(3):
        worker.terminate()
    assert worker.process.wait(PATIENCE_S) in (0, -signal.SIGTERM)
    worker.start()
    eventually(lambda: http.get("/models/slow/ready").is_success)
