"""`millrace bench isolation`: one tenant's requests, alone and beside one that takes all it can."""

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from jobs import clock
from ops.bench.harness.child_process import child
from ops.bench.harness.errors import BenchError
from ops.bench.harness.models_files import models_file, sample
from ops.bench.harness.platform import own_platform, say
from ops.bench.harness.scale import Scale
from ops.bench.load.tenants import Tenants, tenants_of
from ops.bench.results.plots import distributions, picture
from ops.bench.results.report import Report, scenario

_HOSTILE, _LIGHT = "hostile", "light"
_LIMITS = {"requests_per_s": 20, "tokens_per_s": 1e9, "calls_in_flight": 16}
_SECONDS, _WARM_UP_S = 12.0, 1.0
_POLL_S = 0.005
_JOB_WITHIN_S = 60.0

#: Latencies in ms, by kind of request.
Latencies = Mapping[str, Sequence[float]]


class _Client:
    """Keep-alive connection of the light tenant."""

    def __init__(self, url: str, key: str) -> None:
        address = urlsplit(url)
        self._http = HTTPConnection(str(address.hostname), address.port, timeout=_JOB_WITHIN_S)
        self._headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}

    def ask(self, method: str, path: str, body: Any = None, status: int = 200) -> Any:
        """Response's object. Raises BenchError for another status."""
        data = None if body is None else json.dumps(body)
        self._http.request(method, path, data, self._headers)
        response = self._http.getresponse()
        content = response.read()
        if response.status != status:
            raise BenchError(f"{method} {path} was answered {response.status}: {content!r}")
        return json.loads(content)

    def live(self) -> None:
        """Asks whether the api lives."""
        self.ask("GET", "/livez")

    def call(self) -> None:
        """Makes a call."""
        self.ask("POST", "/infer", {"model": "echo", "input": "light"})

    def list_jobs(self) -> None:
        """Reads a page of jobs."""
        self.ask("GET", "/jobs?limit=20")

    def job(self) -> None:
        """Submits a job of one item, and waits for its end."""
        job = self.ask("POST", "/jobs", {"model": "echo", "items": ["light"]}, 202)["id"]
        deadline_s = clock.monotonic() + _JOB_WITHIN_S
        while self.ask("GET", f"/jobs/{job}")["state"] != "completed":
            if clock.monotonic() > deadline_s:
                raise BenchError(f"{job} has not ended within {_JOB_WITHIN_S:g} s")
            clock.sleep(_POLL_S)


#: Requests of the light tenant, and the time between two of them.
_PROBES: Mapping[str, tuple[Callable[[_Client], None], float]] = {
    "livez": (_Client.live, 0.05),
    "call": (_Client.call, 0.05),
    "list": (_Client.list_jobs, 0.1),
    "job": (_Client.job, 0.25),
}


@scenario(
    "isolation",
    "livez_max_ms <= 100",
    "livez_ratio <= 1.5",
    "call_ratio <= 1.5",
    "job_ratio <= 1.5",
    "list_ratio <= 1.5",
)
def run(report: Report, scale: Scale) -> Any:
    """Measures the light tenant alone and beside the other, in turn.

    Ratios are those of the medians of the rounds' p95. A request's latency counts from the time it
    was due, so that a stall counts for all that it held up.
    """
    models = models_file(sample("echo"), sample("batchstring"))
    with own_platform(1, models) as platform, tenants_of(platform, [_HOSTILE, _LIGHT]) as tenants:
        tenants.limit(_HOSTILE, _LIMITS)
        measure = partial(_measure, platform.url, tenants, scale)
        found = scale.in_turn(
            {
                "alone": lambda _: measure(is_attacked=False),
                "beside": lambda _: measure(is_attacked=True),
            }
        )
    for kind in _PROBES:
        for side, runs in found.items():
            p95s = [float(np.percentile(each[kind], 95)) for each in runs]
            report.median(f"{kind}_p95_", **{f"{side}_ms": p95s})
        report.add(
            **{
                f"{kind}_ratio": report.figures[f"{kind}_p95_beside_ms"]
                / report.figures[f"{kind}_p95_alone_ms"],
                f"{kind}_max_ms": max(max(each[kind]) for each in found["beside"]),
            }
        )
    return _picture(found)


def _measure(url: str, tenants: Tenants, scale: Scale, *, is_attacked: bool) -> Latencies:
    seconds = scale.seconds(_SECONDS)
    if not is_attacked:
        return _probe(url, tenants.keys[_LIGHT], seconds)
    with child("ops.bench.load.hostile", url, tenants.keys[_HOSTILE]) as hostile:
        hostile.receive()
        clock.sleep(_WARM_UP_S)
        found = _probe(url, tenants.keys[_LIGHT], seconds)
        hostile.end_input()
        say(f"the other tenant's requests: {hostile.receive()}")
    return found


def _probe(url: str, key: str, seconds: float) -> Latencies:
    """Latencies of the light tenant's requests, each kind over a connection of its own."""
    found: dict[str, list[float]] = {kind: [] for kind in _PROBES}
    errors: list[BaseException] = []

    def repeat(kind: str) -> None:
        """Sends requests of a kind at their due times."""
        ask, every_s = _PROBES[kind]
        try:
            client, since_s = _Client(url, key), clock.monotonic()
            for n in range(int(seconds / every_s)):
                due_s = since_s + n * every_s
                clock.sleep(max(0.0, due_s - clock.monotonic()))
                ask(client)
                found[kind].append((clock.monotonic() - due_s) * 1000)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=repeat, args=(kind,)) for kind in _PROBES]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    say("; ".join(f"{kind} p95 {np.percentile(ms, 95):.1f}, max {max(ms):.0f} ms"
                  for kind, ms in found.items()))  # fmt: skip
    return found


def _picture(found: Mapping[str, Sequence[Latencies]]) -> Any:
    figure, axes = picture(len(_PROBES), 14)
    for kind, each in zip(_PROBES, axes, strict=True):
        sides = {side: np.concatenate([run[kind] for run in runs]) for side, runs in found.items()}
        distributions(each, sides, kind)
        each.set_xscale("log")
    return figure
