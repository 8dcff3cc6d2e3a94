"""Bodies that are costly to parse, and a tenant that does its worst, hold up nobody else."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from jobs import clock
from ops.bench.harness.child_process import child
from ops.bench.load.light import probe
from ops.supervisor.platform import Platform
from tests.support.children import pid_of
from tests.support.clients import bearer
from tests.support.keys import make_key_at
from tests.support.models.entries import model
from tests.support.platforms import CLOSED, Platforms, spec
from tests.support.wait import eventually, slowdown

MODELS = model("wide", "echo", limits={"max_item_bytes": 4000000})
PLATFORM = CLOSED
JSON = {"Content-Type": "application/json"}
BRACKETS = b'{"model":"echo","timeout_ms":120000,"input":[' + b"[]," * 1_200_000 + b"[]]}"
"""3.6 MB: more than an input of this model may have."""
VALID = b'{"model":"echo","timeout_ms":120000,"input":[' + b"[]," * 80_000 + b"[]]}"
"""240 KB of 80,000 values."""
MOST_S = 0.1
"""CPU time of the api's own process that one such request may take: reading it, and no more."""
TIMES = 4
BACKGROUND = 0.03
"""CPU seconds that its reports and heartbeats may take a second: a busy machine takes long."""


@contextmanager
def client(admin: httpx.Client, tenant: str, *limits: dict[str, float]) -> Iterator[httpx.Client]:
    made = admin.post("/keys", json={"tenant": tenant}).json()
    put = admin.put(f"/tenants/{tenant}/limits", json={"data": list(limits)})
    assert put.status_code == 200, put.text
    headers = bearer(made["key"]) | JSON
    with httpx.Client(base_url=admin.base_url, headers=headers) as http:
        yield http


def cpu_s(platform: Platform) -> float:
    """CPU seconds of the api's process so far, without its children."""
    fields = Path(f"/proc/{pid_of(platform, 'api')}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


def test_requests_are_charged_before_their_bodies_are_read(admin: httpx.Client) -> None:
    bad = b'{"model":"echo","input":'
    paths = ["/infer", "/v1/embeddings", "/jobs", "/v1/batches", "/v1/messages/batches"]
    with client(admin, "limited", {"requests_per_s": 0.001}) as limited:
        eventually(lambda: limited.post("/infer", content=bad).status_code == 429)
        for path in (*paths, "/v2/models/echo/infer"):
            assert limited.post(path, content=bad).status_code == 429, path


@pytest.mark.parametrize(
    ("body", "path", "statuses"),
    [
        (BRACKETS, "/infer", {413}),
        (BRACKETS, "/v1/embeddings", {400}),
        (VALID, "/infer", {200}),
        (VALID[:60_000], "/infer", {400}),
        (VALID.replace(b'"timeout_ms":120000,"input"', b'"priority":"x","items"'), "/jobs", {422}),
    ],
    ids=["refused", "refused embeddings", "valid", "short", "job"],
)
def test_a_costly_body_is_no_work_of_the_process_that_answers_everybody(
    platform: Platform, admin: httpx.Client, body: bytes, path: str, statuses: set[int]
) -> None:
    with client(admin, "heavy") as heavy:
        assert heavy.post(path, content=body).status_code in statuses  # its process has started
        before_s, since_s = cpu_s(platform), clock.monotonic()
        for _ in range(TIMES):
            assert heavy.post(path, content=body).status_code in statuses
        took_s = cpu_s(platform) - before_s
        assert took_s < TIMES * MOST_S + BACKGROUND * (clock.monotonic() - since_s)


_STALL_MS = 1000.0  # a refused body of 3.6 MB alone stalled an api for longer


@pytest.mark.nightly
def test_a_hostile_tenant_holds_up_no_other(platforms: Platforms) -> None:
    """It sends refused and valid bodies, imports, reads, verbs and calls as fast as its connections
    allow: `millrace bench isolation`, in small. The limits of bodies are the default ones."""
    with platforms.running(spec(is_closed=True)) as platform:
        url = platform.settings.database_url
        hostile_key, light_key = (make_key_at(url, tenant)[0] for tenant in ("hostile", "light"))
        with child("ops.bench.load.hostile", platform.url, hostile_key) as hostile:
            hostile.receive()
            took_ms = probe(platform.url, light_key, 4.0)  # raises for whatever isn't answered
            hostile.end_input()
            counts = hostile.receive()
    # A starved api stands still by itself now and then, for a single look.
    assert sorted(took_ms["livez"])[-3] < _STALL_MS * slowdown()
    assert counts["refused bodies"].keys() & {"400", "413", "422"}, counts
