"""Every metric, emitted by a platform that does what it is there for, and as much as was done."""

import socket
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import redis
from prometheus_client import Gauge, Histogram
from prometheus_client.parser import text_string_to_metric_families

from jobs.calls.keys import Keys
from jobs.settings import Settings, SettingsError
from jobs.telemetry.metrics import catalog, exposition
from jobs.telemetry.metrics.metrics import SECTIONS, Metric
from jobs.telemetry.reports import reader
from jobs.telemetry.reports.reports import KEY, Report
from millrace import Client
from ops.supervisor.platform import Platform
from tests.support.children import kill
from tests.support.children import until as polled
from tests.support.clients import chat, request_bytes, send
from tests.support.models.deadly import LAUNCHES, RELEASED
from tests.support.models.entries import function, model
from tests.support.pace import lease_s
from tests.support.platforms import Platforms, spec
from tests.support.servers.receiver import Received, receiving
from tests.support.servers.upstream import Answer, Upstream, serving, shout
from tests.support.wait import eventually

UPSTREAM = {"body": {"text": "$input"}, "output": "/results/0/text"}
MODELS = (
    model("echo", "echo", target_ms=30_000)
    + function("broken:moody")
    + function("broken:flaky", limits={"backoff_ms": 10})
    + function("deadly:deadly", target_ms=60_000)
    + function("paced:slow", target_ms=60_000, limits={"max_batch": 4, "slice_items": 4})
    + model(
        "talk", "echo_chat", target_ttft_ms=60_000,
        step_ms=5, blocks=70, context_tokens=1024, sequences=1,
    )
)  # fmt: skip

DEATHS = {
    "millrace_worker_deaths_total",
    "millrace_calls_recovered_total",
    "millrace_leases_reaped_total",
}
"""Those that a worker has to die for."""
NOT_HERE = """
    database_errors_total redis_errors_total: they are there all the time
    background_failures_total: no task of an api fails
    leases_lost_total: a worker would have to freeze for longer than a lease
    prefix_cache_hits_total: the engine keeps no prefixes
    tenant_share_ratio: nobody waits for a whole minute
    route_fallbacks_total shadow_calls_total: no model has a route
    pool_desired_replicas pool_overdue_replicas scale_decisions_total: no pool has an autoscaler
    pool_reclaimed_workers: no worker is spot
    pool_slack_seconds: no call waits when it is looked
    adapter_loads_total adapter_load_seconds adapter_evictions_total adapter_slots_used: no adapters
    prepared_items_total prepared_bytes_total prepared_taken_total: workers prepare their own items
    fetches_total fetched_bytes_total fetch_seconds: no model fetches
    device_active_seconds_total device_throttled_seconds_total device_power_watts: there is no GPU
    device_temperature_celsius device_ecc_uncorrected_errors device_xid_errors_total: likewise
"""
ABSENT = {
    f"millrace_{name}"
    for line in NOT_HERE.strip().splitlines()
    for name in line.partition(":")[0].split()
}
CALLS, TALKS, JOBS, ITEMS, LARGE, READ = 5, 4, 7, 40, 2_000, 3
Labels = Mapping[str, str]


class Scraped:
    def __init__(self, *texts: str) -> None:
        self.samples = [
            sample
            for text in texts
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        ]

    def sum(self, name: str, **labels: str) -> float:
        return sum(self._found(name, {key.rstrip("_"): value for key, value in labels.items()}))

    def has(self, metric: Metric) -> bool:
        """Gauges by being there, others by having counted."""
        name = catalog.exposed_name(metric)
        if isinstance(metric, Gauge):
            return any(True for _ in self._found(name, {}))
        return self.sum(f"{name}_count" if isinstance(metric, Histogram) else name) > 0

    def _found(self, name: str, labels: Labels) -> Iterator[float]:
        for sample in self.samples:
            if sample.name == name and labels.items() <= sample.labels.items():
                yield sample.value


@dataclass
class Played:
    """Work that was done, and metrics before and after the worker was killed."""

    answers: list[dict[str, Any]]
    first: Scraped
    last: Scraped
    reports: list[Report]


def scraped(platform: Platform) -> Scraped | None:
    """None while one of them isn't there."""
    try:
        return Scraped(*(httpx.get(url).raise_for_status().text for url in platform.metrics))
    except httpx.TransportError:
        return None


def until(platform: Platform, lacks: Callable[[Scraped], object]) -> Scraped:
    """Scrapes until nothing is lacking; a worker that ended is started again meanwhile."""
    lacking: object = "a process"

    def look() -> Scraped | None:
        nonlocal lacking
        platform.poll()
        found = scraped(platform)
        lacking = lacks(found) if found else "a process"
        return None if lacking else found

    try:
        found = eventually(look)
    except AssertionError as error:
        raise AssertionError(f"lacking: {lacking}") from error
    assert found
    return found


def calls(client: Client, http: httpx.Client) -> list[dict[str, Any]]:
    answers = [client.infer("echo", f"text {n}") for n in range(CALLS)]
    assert http.post("/infer", json={"model": "moody", "input": "raise"}).status_code == 500
    assert http.post("/v2/models/nobody/infer", content=b"{}").status_code == 404
    assert http.post("/v1/embeddings", content=b"{}").status_code == 415
    assert http.get("/nothing/like/this").status_code == 404
    assert client.infer("shout", "hey")["output"] == "HEY"
    assert client.infer("talk", chat("one two"))["output"]["usage"]["completion_tokens"] == 2
    return answers


def leave_a_call(platform: Platform, store: "redis.Redis") -> None:
    """Goes away while a launch holds the call, which is counted as cancelled."""
    home, keys = platform.settings.home, Keys("deadly@1")
    launches = home / LAUNCHES
    launches.touch()
    body = b'{"model": "deadly", "input": "hold", "timeout_ms": 120000}'
    with send(platform, request_bytes("/infer", {"Content-Type": "application/json"}, body)):
        eventually(lambda: "hold" in launches.read_text())
    eventually(lambda: not store.exists(keys("calls"), keys("taken")))
    (home / RELEASED).touch()


def preempt(client: Client) -> None:
    """Calls take the place of an item that runs."""
    endless = [chat("go on", min_tokens=900, max_tokens=900)] * 2
    body = {"model": "talk", "items": [{"input": value} for value in endless]}
    job = client.request("POST", "/jobs", json=body)["id"]
    eventually(lambda: client.jobs.get(job)["state"] == "running")
    for _ in range(TALKS - 1):  # the first may come before the item
        client.infer("talk", chat("let me in"))
    client.jobs.wait(job)


def jobs(client: Client, http: httpx.Client, home: Path, hook: str) -> None:
    def job(model: str, items: list[str], **order: Any) -> Any:
        return client.request("POST", "/jobs", json={"model": model, "items": items, **order})

    done = job("echo", ["x"] * ITEMS, webhook={"url": hook}, output={"files": {}})
    moody = job("moody", ["a", "b", "raise", "nan"])
    again = job("flaky", [f"fails 1 {home / 'tries'}"])
    slow = job("slow", ["a"] * 100)
    eventually(lambda: client.jobs.get(slow["id"])["counts"]["succeeded"] > 0)
    client.request("POST", f"/jobs/{slow['id']}/cancel")
    lines = b'"%s"\n' % (b"a rather long text for an item" * 30) * LARGE
    headers = {"Content-Type": "application/x-ndjson"}
    large = http.post("/jobs?model=echo", content=lines, headers=headers).json()
    content = {"file": ("a.jsonl", b'{"input": "x"}\n' * READ)}
    file = http.post("/v1/files", data={"purpose": "batch"}, files=content).json()
    read = client.request("POST", "/jobs", json={"model": "echo", "input": {"file": file["id"]}})
    for one in (done, moody, again, slow, large, read):
        client.jobs.wait(one["id"])


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory, platforms: Platforms) -> Iterator[Played]:
    home = tmp_path_factory.mktemp("metrics")
    with serving() as upstream, receiving() as receiver:
        models = MODELS + model(
            "shout", "http", target_ms=5000, url=f"{upstream.url}/shout", **UPSTREAM
        )
        asked = spec(models, lease_s=lease_s(2.0), webhook_allow="127.0.0.1")
        with (
            platforms.running(asked) as platform,
            closing(Client(platform.url)) as client,
            httpx.Client(base_url=platform.url) as http,
            redis.Redis.from_url(platform.settings.redis_url) as store,
        ):
            answers = calls(client, http)
            leave_a_call(platform, store)
            jobs(client, http, home, receiver.url)
            preempt(client)
            first = until(platform, untold)
            reports = eventually(lambda: all_reports(store))
            last = after_a_death(platform, client, http, upstream)
            yield Played(answers, first, last, reports)


def all_reports(store: "redis.Redis") -> list[Report]:
    """Empty while one of the three kinds of processes hasn't reported."""
    found = reader.read(store).reports
    return list(found) if len({report.kind for report in found}) == 3 else []


def untold(seen: Scraped) -> dict[str, object]:
    """Returns what isn't told yet; gauges are set every five seconds."""
    ended = sum(seen.sum("millrace_jobs", state=state) for state in ("completed", "cancelled"))
    moved = seen.sum("millrace_transfers_total", outcome="done")
    lacking = missing(seen, ABSENT | DEATHS)
    told = ended == JOBS and moved == 2 and not lacking
    return {} if told else {"ended": ended, "moved": moved, "missing": lacking}


def missing(seen: Scraped, unseen: Collection[str]) -> list[str]:
    return [
        catalog.exposed_name(metric)
        for found in SECTIONS.values()
        for metric in found
        if catalog.exposed_name(metric) not in unseen and not seen.has(metric)
    ]


def after_a_death(
    platform: Platform, client: Client, http: httpx.Client, upstream: Upstream
) -> Scraped:
    """Kills a worker with a call and a slice in hand: both are held until it is dead."""
    home = platform.settings.home
    released, asked = home / RELEASED, threading.Event()
    released.unlink()

    def hold(request: Received) -> Answer:
        asked.set()
        upstream.over.wait()
        return shout(request)

    upstream.answer = hold
    client.request("POST", "/jobs", json={"model": "deadly", "items": ["hold a slice"]})
    eventually(lambda: "hold a slice" in (home / LAUNCHES).read_text())
    with ThreadPoolExecutor(1) as pool:
        body = {"model": "shout", "input": "hey", "timeout_ms": 60_000}
        answer = pool.submit(http.post, "/infer", json=body)
        eventually(asked.is_set)
        kill(platform)
        released.touch()
        upstream.answer = shout
        polled(platform, answer.done)
        assert answer.result().status_code == 200
    return until(platform, lambda seen: {name for name in DEATHS if not seen.sum(name)})


def test_every_metric_is_emitted(played: Played) -> None:
    assert missing(played.first, ABSENT | DEATHS) == []
    assert not [name for name in DEATHS if not played.last.sum(name)]


def test_calls_are_counted_with_their_time(played: Played) -> None:
    seen = played.first
    echo = {"model": "echo@1"}
    assert seen.sum("millrace_calls_total", outcome="succeeded", **echo) == CALLS
    assert seen.sum("millrace_call_target_total", met="true", **echo) == CALLS
    assert seen.sum("millrace_calls_total", model="moody@1", outcome="internal") == 1
    assert seen.sum("millrace_call_target_total", model="moody@1", met="false") == 1
    assert seen.sum("millrace_calls_total", model="deadly@1", outcome="cancelled") == 1
    assert seen.sum("millrace_call_target_total", model="deadly@1") == 0
    assert seen.sum("millrace_call_seconds_count", **echo) == CALLS
    whole_s = seen.sum("millrace_call_seconds_sum", **echo)
    stages_s = seen.sum("millrace_call_stage_seconds_sum", **echo)
    assert stages_s == pytest.approx(whole_s, rel=0.01)
    for answer in played.answers:
        timing = answer["timing"]
        parts = ("gateway", "preprocess", "queue", "batch", "engine", "post")
        total_ms = sum(timing[f"{part}_ms"] for part in parts)
        assert total_ms == pytest.approx(timing["total_ms"], abs=0.01)
    told_s = sum(answer["timing"]["queue_ms"] for answer in played.answers) / 1000
    found_s = seen.sum("millrace_call_stage_seconds_sum", stage="queue", **echo)
    assert found_s == pytest.approx(told_s, abs=1e-4)
    assert seen.sum("millrace_upstream_requests_total", outcome="served") == 1
    assert seen.sum("millrace_upstream_breaker_open") == 0


def test_requests_are_counted_by_the_template_of_their_route(played: Played) -> None:
    def requests(method: str, route: str, status: int) -> float:
        labels = {"method": method, "route": route, "status": str(status)}
        return played.first.sum("millrace_http_requests_total", **labels)

    assert requests("POST", "/infer", 200) == CALLS + 1 + TALKS
    assert requests("POST", "/infer", 500) == 1
    assert requests("POST", "/v2/models/{model}/infer", 404) == 1
    assert requests("POST", "/v1/embeddings", 415) == 1
    assert requests("GET", "unknown", 404) == 1
    assert requests("POST", "/jobs", 202) == JOBS
    assert requests("POST", "/jobs/{job_id}/cancel", 200) == 1
    assert requests("GET", "/jobs/{job_id}", 200) > 6


def test_items_are_counted_from_their_submission_to_their_end(played: Played) -> None:
    seen = played.first
    items = ITEMS + LARGE + READ
    assert seen.sum("millrace_items_submitted_total", model="echo@1") == items
    assert seen.sum("millrace_jobs_submitted_total", model="echo@1", class_="standard") == 3
    assert seen.sum("millrace_items_total", model="echo@1", outcome="succeeded") == items
    assert seen.sum("millrace_entries_total", model="echo@1", kind="item") == items
    assert seen.sum("millrace_tenant_entries_total", tenant="default", model="echo@1") == (
        items + CALLS
    )
    assert seen.sum("millrace_lane_entries_total", model="echo@1") == items + CALLS
    assert seen.sum("millrace_launch_rows_sum", model="echo@1") == items + CALLS
    assert seen.sum("millrace_items_total", model="moody@1", outcome="succeeded") == 2
    assert seen.sum("millrace_items_total", model="moody@1", outcome="failed") == 2
    assert seen.sum("millrace_item_errors_total", code="invalid_output") == 1
    assert seen.sum("millrace_item_retries_total", model="flaky@1") == 1
    slow = seen.sum("millrace_items_total", model="slow@1")
    assert slow == 100
    assert 0 < seen.sum("millrace_items_total", model="slow@1", outcome="cancelled") < slow
    assert seen.sum("millrace_jobs", state="completed") == JOBS - 1
    assert seen.sum("millrace_jobs", state="cancelled") == 1
    assert seen.sum("millrace_webhook_attempts_total", outcome="delivered") == 1
    assert seen.sum("millrace_transfers_total", kind="import", outcome="done") == 1
    assert seen.sum("millrace_transfers_total", kind="export", outcome="done") == 1


def test_the_device_was_as_busy_as_its_models(played: Played) -> None:
    seen = played.first
    busy_s = seen.sum("millrace_device_busy_seconds_total")
    models_s = seen.sum("millrace_model_device_seconds_total")
    assert 0 < busy_s <= models_s * 1.01 + 0.1
    assert seen.sum("millrace_tenant_device_seconds_total") == pytest.approx(models_s, rel=0.01)


def test_a_death_is_counted_by_its_kind(played: Played) -> None:
    assert played.last.sum("millrace_worker_deaths_total", how="killed") == 1
    assert played.last.sum("millrace_calls_recovered_total") == 1


def test_each_process_reports(played: Played) -> None:
    about = {report.kind: report.details for report in played.reports}
    assert about.keys() == {"api", "keeper", "worker"}
    assert about["api"]["url"].startswith("http://127.0.0.1:")
    echo = about["worker"]["models"]["echo@1"]
    assert echo["state"] == "ready"
    assert echo["profile"]["0"]["full_rows"] > 1


def test_a_port_that_is_taken_is_told_at_the_start(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        found = Settings(home=tmp_path, metrics_port=taken.getsockname()[1])
        for start in (exposition.check_port, exposition.serve):
            with pytest.raises(SettingsError, match=r"MILLRACE_METRICS_PORT.*can't listen on"):
                start(found)


@pytest.mark.nightly
def test_switched_off_nothing_is_counted_nor_reported(platforms: Platforms) -> None:
    with platforms.running(metrics=False) as platform:
        assert platform.metrics == []
        with closing(Client(platform.url)) as client:
            client.infer("echo", "a")
        call = httpx.post(f"{platform.url}/infer", json={"model": "echo", "input": "a"}).json()
        kept = httpx.get(f"{platform.url}/calls/{call['id']}").json()
        assert kept["detail"] == "nothing is kept of calls: MILLRACE_METRICS is off"
        found = Scraped(httpx.get(f"{platform.url}/metrics").text)
        assert found.sum("millrace_calls_total") == 0
        assert found.sum("millrace_database_transaction_seconds_count") == 0
        with redis.Redis.from_url(platform.settings.redis_url) as store:
            assert not store.exists(KEY)
