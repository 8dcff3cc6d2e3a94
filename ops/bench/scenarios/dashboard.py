"""`millrace bench dashboard`: latency of pages over a database that has long been in use, and the
cost of a page that is open.

Latencies are those of whole pages, one after the other. The cost of an open page is the CPU of the
api and PostgreSQL while its stream is read, less what they use without it; a job a second is
submitted all the while.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import httpx

from jobs import clock
from ops.bench.harness.fill_database import fill
from ops.bench.harness.platform import database_of, own_platform, say
from ops.bench.harness.repeat import repeat
from ops.bench.harness.scale import Scale
from ops.bench.probes.cpu import Meter
from ops.bench.results.report import Report, scenario
from ops.supervisor.platform import Platform

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
_PAGES = {
    "job": "/jobs/{large}",
    "items": "/jobs/{large}?outcome=failed",
    "slices": "/jobs/{large}/slices",
    "item": "/jobs/{large}/items/3",
    "confirm": "/jobs/all/cancel?state=queued",
    "tenants": "/tenants",
    "tenant": "/tenants/tenant-00",
    "webhooks": "/webhooks",
    "webhooks_failed": "/webhooks?state=failed",
    "audit": "/audit",
    "audit_actor": "/audit?actor=oidc:person-7",
}


@scenario(
    "dashboard",
    "overview_p95_ms <= 200",
    "list_p95_ms <= 100",
    "job_p95_ms <= 200",
    *(f"{name}_open_cpu_share <= 0.02" for name in ("overview", "list", "job")),
)
def run(report: Report, scale: Scale) -> None:
    """Fills a database, then reads pages."""
    jobs, rounds, open_s = (2_000, 5, 5.0) if scale.quick else (100_000, 40, 60.0)
    with own_platform() as platform, httpx.Client(base_url=platform.url, timeout=60) as http:
        since_s = clock.monotonic()
        say(f"writing {jobs:,} jobs")
        with database_of(platform) as database:
            fill(database, jobs)
        report.add(jobs=jobs, fill_s=clock.monotonic() - since_s)
        _pages(report, http, rounds)
        _open_pages(report, platform, http, open_s)


def _pages(report: Report, http: httpx.Client, rounds: int) -> None:
    found = http.get("/jobs", params={"tenant": "*", "limit": 500}).json()["data"]
    words = {
        "large": max(found, key=lambda job: job["counts"]["total"])["id"],
        "long_ago": _day(13),
        "then": _day(12),
        "deep": _deep(http),
    }
    _page(report, http, "overview", "", rounds)
    lists = [
        _page(report, http, f"list_{name}", f"/jobs?{query.format(**words)}", rounds)
        for name, query in _LISTS.items()
    ]
    report.add(list_p95_ms=max(lists))
    for name, path in _PAGES.items():
        _page(report, http, name, path.format(**words), rounds)


def _day(ago: int) -> str:
    return f"{clock.ago(86_400 * ago):%Y-%m-%dT%H:%M}"


def _deep(http: httpx.Client) -> str:
    """Id of a job nearly at the end: the index skips what is before it."""
    page = http.get("/dashboard/jobs", params={"until": _day(13)}).text
    return page.split('data-key="', 1)[1].split('"', 1)[0]


def _page(report: Report, http: httpx.Client, name: str, path: str, rounds: int) -> float:
    """Returns the p95, ms. The first read, from the disk, counts too."""
    took_ms = []
    for _ in range(rounds):
        since_s = clock.monotonic()
        http.get(f"/dashboard{path}").raise_for_status()
        took_ms.append((clock.monotonic() - since_s) * 1000)
    report.percentiles(f"{name}_{{}}_ms", took_ms, 50, 95)
    return report.figures[f"{name}_p95_ms"]


def _open_pages(report: Report, platform: Platform, http: httpx.Client, seconds: float) -> None:
    running = http.get("/jobs", params={"tenant": "*", "state": "running", "limit": 1})
    job = running.json()["data"][0]["id"]
    api = [c.pid for c in platform.supervisor.children if c.name == "api" and c.pid]
    postgres = platform.servers.postgres.process
    assert postgres
    meter = Meter({"api": api, "postgres": [postgres.pid]}, {})
    job_a_second = {"model": "echo", "items": ["a", "b"]}
    with repeat(1.0, lambda: http.post("/jobs", json=job_a_second).raise_for_status()):
        say(f"nothing open, for {seconds:g} s")
        idle = meter.cores(seconds)
        report.add(nothing_open_cpu_share=idle)
        for name, path in (("overview", ""), ("list", "/jobs"), ("job", f"/jobs/{job}")):
            say(f"{name} open, for {seconds:g} s")
            with _opened(f"{platform.url}/dashboard{path}"):
                share = meter.cores(seconds)
            report.add(f"{name}_", and_all_cpu_share=share, open_cpu_share=max(0.0, share - idle))


@contextmanager
def _opened(url: str) -> Iterator[None]:
    """Opens a stream as an EventSource does, and discards what it reads."""
    with httpx.stream("GET", url, headers={"Accept": "text/event-stream"}, timeout=30) as stream:
        stream.raise_for_status()

        def read() -> None:
            """Discards what comes."""
            with suppress(httpx.HTTPError, httpx.StreamError):  # it was closed
                for _ in stream.iter_raw():
                    pass

        threading.Thread(target=read, daemon=True).start()
        yield
