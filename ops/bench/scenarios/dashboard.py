"""`millrace bench dashboard`: pages over a database that has been in use for a long time, and what
it costs that somebody has one open.

Latencies are those of whole pages, as a browser gets them, one after the other. The cost of an
open page is the CPU of the api and PostgreSQL while its stream is read, less what they use without
it; a job a second is handed in all the while.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import httpx
import numpy as np

from jobs import clock
from jobs.store import db
from ops.bench.harness.fill_database import fill
from ops.bench.harness.platform import own_platform, say
from ops.bench.harness.scale import FULL, Scale
from ops.bench.probes.cpu import Meter
from ops.bench.results.report import Report
from ops.supervisor.platform import Platform

ASKED = {
    "overview_p95_ms": "<= 200",
    "list_p95_ms": "<= 100",
    "job_p95_ms": "<= 200",
    "overview_open_cpu_share": "<= 0.02",
    "list_open_cpu_share": "<= 0.02",
    "job_open_cpu_share": "<= 0.02",
}
_LISTS = {
    "all": "",
    "state": "state=paused",
    "states": "state=queued,running",
    "model": "model=model-b%402",
    "tenant": "tenant=tenant-19",
    "time": "since={long_ago}&until={then}",
    "text": "text=person-7+mail",
    "text_nowhere": "text=nothing-is-like-that",
    "unsuccessful": "unsuccessful=1",
    "several": "state=completed&model=model-c&tenant=tenant-03&text=reports",
    "nothing": "model=nothing-is-like-that",
    "deep": "after={deep}",
    "deep_rare": "state=expired&tenant=tenant-12&after={deep}",
}


def run(effort: Scale) -> None:
    quick = effort is not FULL
    report = Report("dashboard", ASKED, quick)
    jobs, rounds, open_s = (2_000, 5, 5.0) if quick else (100_000, 40, 60.0)
    with own_platform() as platform, httpx.Client(base_url=platform.url, timeout=60) as http:
        since_s = clock.monotonic()
        _fill(platform, jobs)
        report.add(jobs=jobs, fill_s=clock.monotonic() - since_s)
        _pages(report, http, rounds)
        _open_pages(report, platform, http, open_s)
    report.finish()


def _fill(platform: Platform, jobs: int) -> None:
    say(f"writing {jobs:,} jobs")
    database = db.connect(platform.settings.database_url, pool_size=1)
    try:
        fill(database, jobs)
    finally:
        database.dispose()


def _pages(report: Report, http: httpx.Client, rounds: int) -> None:
    found = http.get("/jobs", params={"tenant": "*", "limit": 500}).json()["data"]
    large = max(found, key=lambda job: job["counts"]["total"])["id"]
    words = {"long_ago": _day(13), "then": _day(12), "deep": _deep(http)}
    _page(report, http, "overview", "/dashboard", rounds)
    slowest = []
    for name, query in _LISTS.items():
        path = f"/dashboard/jobs?{query.format(**words)}"
        slowest.append(_page(report, http, f"list_{name}", path, rounds))
    report.add(list_p95_ms=max(slowest))
    _page(report, http, "job", f"/dashboard/jobs/{large}", rounds)
    for name, path in (
        ("items", f"/jobs/{large}?outcome=failed"),
        ("slices", f"/jobs/{large}/slices"),
        ("item", f"/jobs/{large}/items/3"),
        ("confirm", "/jobs/all/cancel?state=queued"),
        ("tenants", "/tenants"),
        ("tenant", "/tenants/tenant-00"),
        ("webhooks", "/webhooks"),
        ("webhooks_failed", "/webhooks?state=failed"),
        ("audit", "/audit"),
        ("audit_actor", "/audit?actor=oidc:person-7"),
    ):
        _page(report, http, name, f"/dashboard{path}", rounds)


def _day(ago: int) -> str:
    return f"{clock.ago(86_400 * ago):%Y-%m-%dT%H:%M}"


def _deep(http: httpx.Client) -> str:
    """The id of a job nearly at the end: what is before it is skipped by the index."""
    answer = http.get("/dashboard/jobs", params={"until": _day(13)}).text
    return answer.split('data-key="', 1)[1].split('"', 1)[0]


def _page(report: Report, http: httpx.Client, name: str, path: str, rounds: int) -> float:
    """Its p95, ms. The first one, which reads what isn't in memory, counts too."""
    took_ms = [_took_ms(http, path) for _ in range(rounds)]
    p50, p95 = np.percentile(took_ms, [50, 95])
    report.add(**{f"{name}_p50_ms": p50, f"{name}_p95_ms": p95})
    return float(p95)


def _took_ms(http: httpx.Client, path: str) -> float:
    since_s = clock.monotonic()
    http.get(path).raise_for_status()
    return (clock.monotonic() - since_s) * 1000


def _open_pages(report: Report, platform: Platform, http: httpx.Client, seconds: float) -> None:
    running = http.get("/jobs", params={"tenant": "*", "state": "running", "limit": 1})
    a_job = running.json()["data"][0]["id"]
    with _handing_in(platform.url):
        say(f"nothing open, for {seconds:g} s")
        idle = _cpu_share(platform, seconds)
        report.add(nothing_open_cpu_share=idle)
        for name, path in (("overview", ""), ("list", "/jobs"), ("job", f"/jobs/{a_job}")):
            say(f"{name} open, for {seconds:g} s")
            with _opened(f"{platform.url}/dashboard{path}"):
                share = _cpu_share(platform, seconds)
            with_it = {f"{name}_and_all_cpu_share": share}
            report.add(**with_it, **{f"{name}_open_cpu_share": max(0.0, share - idle)})


def _cpu_share(platform: Platform, seconds: float) -> float:
    """Of a core, that the api and PostgreSQL use."""
    api = [c.pid for c in platform.supervisor.children if c.name == "api" and c.pid]
    postgres = platform.servers.postgres.process
    assert postgres
    meter = Meter({"api": api, "postgres": [postgres.pid]}, {})
    before, since_s = sum(meter.read().values()), clock.monotonic()
    clock.sleep(seconds)
    return (sum(meter.read().values()) - before) / (clock.monotonic() - since_s)


@contextmanager
def _handing_in(url: str) -> Iterator[None]:
    def hand_in(http: httpx.Client) -> None:
        http.post("/jobs", json={"model": "echo", "items": ["a", "b"]}).raise_for_status()

    with _beside(url, hand_in, 1.0):
        yield


@contextmanager
def _beside(url: str, act: Callable[[httpx.Client], None], every_s: float) -> Iterator[None]:
    """Does it over and over, on a thread of its own."""
    ended = threading.Event()

    def go() -> None:
        with httpx.Client(base_url=url, timeout=60) as http:
            while not ended.wait(every_s):
                act(http)

    thread = threading.Thread(target=go, daemon=True)
    thread.start()
    yield
    ended.set()
    thread.join()


@contextmanager
def _opened(url: str) -> Iterator[None]:
    """As an EventSource opens it: what comes is read and thrown away."""
    with httpx.stream(
        "GET", url, headers={"Accept": "text/event-stream"}, timeout=httpx.Timeout(30)
    ) as stream:
        stream.raise_for_status()

        def read() -> None:
            try:
                for _ in stream.iter_raw():
                    pass
            except (httpx.HTTPError, httpx.StreamError):
                return  # it was closed

        thread = threading.Thread(target=read, daemon=True)
        thread.start()
        yield
