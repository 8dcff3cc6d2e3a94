"""Payloads of a megabyte through the whole platform, compressed answers, readers that leave."""

import gzip
import json
import os
import socket

import httpx
import pytest
from sqlalchemy import text

from millrace import Client
from ops.supervisor.platform import Platform
from tests.support.children import pid_of
from tests.support.models.entries import model
from tests.support.platforms import OPEN, transaction
from tests.support.wait import eventually

MODELS = model("large", "echo", limits={"max_item_bytes": 4000000, "slice_items": 500})
NDJSON = {"Content-Type": "application/x-ndjson"}
LARGE = "millrace " * 120_000
PLATFORM = OPEN


@pytest.fixture(scope="module")
def large_job(client: Client) -> str:
    """Large items between small ones, done."""
    values = [LARGE + str(n) if n % 3 == 1 else f"small {n}" for n in range(12)]
    job = client.jobs.wait(client.jobs.submit("large", values).id)
    assert job.counts.succeeded == 12
    return job.id


@pytest.fixture(scope="module")
def long_job(client: Client) -> str:
    """More bytes than the buffers of all sockets on the way."""
    return client.jobs.wait(client.jobs.submit("large", ["x" * 5000] * 8000).id).id


def test_items_of_a_megabyte_come_back_from_the_folder_under_home(
    client: Client, http: httpx.Client, platform: Platform, large_job: str
) -> None:
    found = list(client.jobs.results(large_job, wait=False))
    assert [line["seq"] for line in found] == list(range(12))
    for seq, line in enumerate(found):
        value = LARGE + str(seq) if seq % 3 == 1 else f"small {seq}"
        assert (line["output"], line["outcome"]) == (value, "succeeded")
    item = http.get(f"/jobs/{large_job}/items/4").json()
    assert item["input"] == item["output"] == LARGE + "4"
    paths = (platform.settings.home / "blobs").rglob("*/[0-9]*-*")
    large = [path for path in paths if path.is_file() and path.stat().st_size > 1_000_000]
    assert len(large) >= 8  # other modules may have left some


@pytest.mark.parametrize("asked", ["gzip", "identity", "gzip;q=0"])
def test_results_are_compressed_where_it_is_asked(
    http: httpx.Client, large_job: str, asked: str
) -> None:
    path, headers = f"/jobs/{large_job}/results", {"Accept-Encoding": asked}
    with http.stream("GET", path, headers=headers) as answer:
        raw = b"".join(answer.iter_raw())
    assert answer.headers["vary"] == "Accept-Encoding"
    assert answer.headers.get("content-encoding") == ("gzip" if asked == "gzip" else None)
    if asked == "gzip":
        assert len(raw) < 200_000
        raw = gzip.decompress(raw)
    assert [json.loads(line)["seq"] for line in raw.splitlines()] == list(range(12))


@pytest.mark.parametrize("after", [10, 11, 12, 2**31 - 1])
@pytest.mark.parametrize("query", [{}, {"gaps": "true"}, {"limit": 5}, {"outcome": "failed"}])
def test_the_place_to_go_on_from_never_falls_back(
    http: httpx.Client, large_job: str, after: int, query: dict[str, str]
) -> None:
    answer = http.get(f"/jobs/{large_job}/results", params={"after": after} | query)
    assert answer.headers["x-next-after"] == str(max(after, 11))
    assert answer.headers["x-complete"] == "true"


def test_readers_that_leave_in_mid_stream_leave_nothing_behind(
    http: httpx.Client, platform: Platform, long_job: str
) -> None:
    api = pid_of(platform, "api")
    assert http.get("/readyz").status_code == 200
    before = len(os.listdir(f"/proc/{api}/fd"))
    for encoding in ("identity", "gzip"):
        head = f"Host: localhost\r\nAccept-Encoding: {encoding}"
        get = f"GET /jobs/{long_job}/results HTTP/1.1\r\n{head}"
        for _ in range(15):
            with socket.create_connection((platform.settings.host, platform.settings.port)) as s:
                s.sendall(get.encode() + b"\r\n\r\n")
                assert s.recv(100).startswith(b"HTTP/1.1 200")
    # What is left may only be connections that the pool keeps.
    eventually(lambda: len(os.listdir(f"/proc/{api}/fd")) <= before + 10)
    eventually(lambda: open_transactions(platform) == 0)
    assert http.get("/readyz").status_code == 200


def open_transactions(platform: Platform) -> int:
    with transaction(platform) as connection:
        found: int = connection.scalar(
            text("SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in transaction%'")
        )
    return found


def test_a_stream_that_can_not_go_on_is_cut_off_visibly(
    http: httpx.Client, platform: Platform, large_job: str
) -> None:
    blobs = platform.settings.home / "blobs"
    elsewhere = blobs.rename(blobs.with_name("elsewhere"))
    blobs.touch()
    try:
        with pytest.raises(httpx.RemoteProtocolError):
            http.get(f"/jobs/{large_job}/results")
        item = http.get(f"/jobs/{large_job}/items/4")
        assert (item.status_code, item.json()["code"]) == (503, "blobs_away")
        refused = http.post("/jobs?model=large", content=json.dumps(LARGE), headers=NDJSON)
        assert (refused.status_code, refused.json()["code"]) == (503, "blobs_away")
        assert refused.headers["retry-after"] == "5"
    finally:
        blobs.unlink()
        elsewhere.rename(blobs)
    assert len(http.get(f"/jobs/{large_job}/results").text.splitlines()) == 12
