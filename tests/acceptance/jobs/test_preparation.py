"""Items that workers of their own prepare, with real processes that are killed and stopped."""

import os
import signal
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import redis
from sqlalchemy import text

from millrace import Client
from ops.supervisor.platform import Platform
from tests.support.children import kill_and_replace, pid_of
from tests.support.jobs import assert_invariants, finish, run, scalar_of
from tests.support.models import images
from tests.support.models.entries import model
from tests.support.platforms import POOLS, transaction
from tests.support.servers.receiver import Receiver, Reply
from tests.support.wait import eventually

CODE = """
import os
import time

import numpy as np

SAMPLES = ["warm"]


def prepare(value):
    raw = value if isinstance(value, bytes) else value.encode()
    if raw.startswith(b"bad"):
        raise ValueError("this is no picture")
    if raw.startswith(b"slow"):
        time.sleep(0.005)
    if raw.startswith(b"deadly"):
        os.abort()
    return {"by": os.getpid(), "bytes": np.frombuffer(raw, np.uint8)}


def predict(batch):
    return [
        {"prepared_by": one["by"], "run_by": os.getpid(), "sum": int(one["bytes"].sum())}
        for one in batch
    ]
"""
SUMS = {"fetch": True, "limits": {"slice_items": 50, "max_batch": 16, "backoff_ms": 10}}
PICTURES = {
    "fetch": True,
    "limits": {"max_batch": 8, "max_item_bytes": 1_400_000, "slice_items": 20},
}
PICTURES |= {"module": "workers.engines.classifier", "build": "RandomClassifier"}
MODELS = model("sums", "python", prepare="pool", file="sums.py", **SUMS)
MODELS += model("minilm", "minilm", prepare="pool")
MODELS += model("alone", "python", file="sums.py")
MODELS += model("pictures", "image_classifier", prepare="pool", **PICTURES)
MODELS += model("pictures-alone", "image_classifier", **PICTURES)
FILES = {"sums.py": CODE}
PLATFORM = POOLS


def sums(lines: Sequence[dict[str, Any]]) -> list[int]:
    return [line["output"]["sum"] for line in lines]


def has_torch(platform: Platform) -> bool:
    """Returns True if the worker that prepares has loaded torch."""
    return "libtorch" in Path(f"/proc/{pid_of(platform, 'prepare-1')}/maps").read_text()


def test_own_workers_prepare_and_others_launch(platform: Platform, client: Client) -> None:
    items = [f"item {n}" for n in range(300)]
    lines = run(platform, client, "sums", items)
    assert [line["seq"] for line in lines] == list(range(300))
    assert sums(lines) == [sum(item.encode()) for item in items]
    assert {line["output"]["prepared_by"] for line in lines} == {pid_of(platform, "prepare-1")}
    assert {line["output"]["run_by"] for line in lines} == {pid_of(platform, "worker-1")}


def test_other_models_and_calls_are_prepared_where_they_are_launched(
    platform: Platform, client: Client
) -> None:
    [line] = run(platform, client, "alone", ["x"])
    answer = client.infer("sums", "x")["output"]
    for output in (line["output"], answer):
        assert output["prepared_by"] == output["run_by"] == pid_of(platform, "worker-1")


def test_a_bad_input_fails_alone_and_clearly(platform: Platform, client: Client) -> None:
    items = ["good", "bad", {"no": "text"}, "good"]
    lines = run(platform, client, "sums", items)
    assert [line["outcome"] for line in lines] == ["succeeded", "failed", "failed", "succeeded"]
    assert lines[1]["error"]["code"] == "invalid_input"
    assert "this is no picture" in lines[1]["error"]["message"]
    assert_invariants(platform)


def test_items_come_from_addresses(platform: Platform, client: Client, receiver: Receiver) -> None:
    busy = Counter[str]()

    def answer(request: Any) -> Reply:
        busy[request.path] += 1
        if request.path == "/gone":
            return Reply(404)
        if request.path == "/later" and busy[request.path] < 3:
            return Reply(503)
        return Reply(200, body=request.path.encode())

    receiver.reply = answer
    at = f"http://127.0.0.1:{receiver.port}"
    urls = [f"{at}/1", f"{at}/gone", f"{at}/later", "https://10.0.0.1/x", f"{at}/2"]
    lines = run(platform, client, "sums", urls)
    assert [line["seq"] for line in lines if line["outcome"] == "failed"] == [1, 3]
    assert sums([lines[n] for n in (0, 2, 4)]) == [sum(path) for path in (b"/1", b"/later", b"/2")]
    assert "404" in lines[1]["error"]["message"]
    assert "not public" in lines[3]["error"]["message"]
    assert lines[2]["attempts"] == 3
    with pytest.raises(Exception, match="for items of jobs alone"):
        client.infer("sums", f"{at}/1")


def test_texts_are_tokenized_by_workers_without_torch(platform: Platform, client: Client) -> None:
    texts = [f"a text number {n} " * (n % 40 + 1) for n in range(60)]
    lines = run(platform, client, "minilm", [*texts, ["two", "texts"]])
    assert len(lines[0]["output"]) == 384
    assert [len(vector) for vector in lines[60]["output"]] == [384, 384]
    alone = client.infer("minilm", texts[7])["output"]
    assert lines[7]["output"] == pytest.approx(alone, abs=1e-4)
    assert not has_torch(platform)


def test_killed_prepare_workers_lose_and_double_nothing(platform: Platform, client: Client) -> None:
    items = [f"slow {n}" for n in range(2000)]
    job = client.jobs.submit("sums", items).id
    for _ in range(4):
        _kill_once_it_has_prepared_more(platform, job, len(items))
    lines = finish(platform, client, job)
    assert [line["seq"] for line in lines] == list(range(2000))
    assert sums(lines) == [sum(item.encode()) for item in items]
    assert_invariants(platform)


def _kill_once_it_has_prepared_more(platform: Platform, job: str, total: int) -> None:
    before = prepared_of(platform, job)
    eventually(lambda: before == total or prepared_of(platform, job) > before)
    kill_and_replace(platform, "prepare-1")


def prepared_of(platform: Platform, job: str) -> int:
    """Items that have passed on from their preparation, so far."""
    query = """SELECT coalesce(sum(stop - start), 0) FROM slices
               WHERE job_id = :job AND version = '1'"""
    return int(scalar_of(platform, job, query))


@pytest.mark.nightly
def test_one_stopped_beyond_its_lease_writes_nothing(platform: Platform, client: Client) -> None:
    items = [f"slow {n}" for n in range(1500)]
    job = client.jobs.submit("sums", items).id
    stopped = pid_of(platform, "prepare-1")
    eventually(lambda: prepared_of(platform, job))
    os.kill(stopped, signal.SIGSTOP)
    try:
        eventually(lambda: leased_to(platform, job) == 0)  # its leases have run out
        assert client.jobs.get(job)["state"] == "running"
    finally:
        os.kill(stopped, signal.SIGCONT)
    lines = finish(platform, client, job)
    assert sums(lines) == [sum(item.encode()) for item in items]
    assert_invariants(platform)


def leased_to(platform: Platform, job: str) -> int:
    """Slices that are leased for their preparation."""
    query = """SELECT count(*) FROM slices
               WHERE job_id = :job AND version LIKE '%~prepare' AND state = 'leased'"""
    return int(scalar_of(platform, job, query))


def test_an_input_that_kills_the_workers_is_found(platform: Platform, client: Client) -> None:
    items = [*(f"item {n}" for n in range(20)), "deadly", "last"]
    lines = run(platform, client, "sums", items)
    assert [line["seq"] for line in lines if line["outcome"] == "failed"] == [20]
    assert lines[20]["error"]["code"] == "worker_lost"
    assert_invariants(platform)


@pytest.mark.nightly
def test_prepared_inputs_that_redis_lost_are_prepared_again(
    platform: Platform, client: Client, store: "redis.Redis"
) -> None:
    worker = pid_of(platform, "worker-1")
    os.kill(worker, signal.SIGSTOP)
    try:
        job = client.jobs.submit("sums", [f"item {n}" for n in range(40)]).id
        eventually(lambda: prepared_of(platform, job) == 40)
        keys = list(store.scan_iter("millrace:prepared:*"))
        assert len(keys) >= 40
        store.delete(*keys)
    finally:
        os.kill(worker, signal.SIGCONT)
    lines = finish(platform, client, job)
    assert {line["output"]["prepared_by"] for line in lines} == {worker}
    assert sums(lines) == [sum(f"item {n}".encode()) for n in range(40)]


TRUNCATED = 17  # the number of the file that can't be decoded


def labels(result: dict[str, Any]) -> dict[str, float]:
    return {pair["label"]: pair["score"] for pair in result["output"]}


@pytest.mark.nightly
def test_images_have_the_same_labels_whoever_decodes_them(
    platform: Platform, client: Client, receiver: Receiver
) -> None:
    files = [images.numbered(number) for number in range(60)]
    files[TRUNCATED] = images.hostile()["truncated jpeg"][0]
    receiver.reply = lambda request: Reply(200, body=files[int(request.path[1:])])
    items = [
        f"http://127.0.0.1:{receiver.port}/{number}" if number % 3 == 1 else images.encoded(one)
        for number, one in enumerate(files)
    ]
    found = run(platform, client, "pictures", items)
    expected = run(platform, client, "pictures-alone", items)
    query = "SELECT sum(items) FROM launches WHERE model = 'pictures' AND version = '1~prepare'"
    with transaction(platform) as tx:
        assert tx.scalar(text(query)) >= len(items)
    for number, (one, other) in enumerate(zip(found, expected, strict=True)):
        if number == TRUNCATED:
            assert one["error"] == other["error"]
            assert "can't decode this JPEG" in one["error"]["message"]
        else:
            assert labels(one) == pytest.approx(labels(other), abs=1e-4)
    assert not has_torch(platform)
