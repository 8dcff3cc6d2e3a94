"""`millrace bench batches`: a file of lines of 1 KB goes through OpenAI's door: how fast its lines
are checked, what memory the api takes for it, and what calls of another model notice of it."""

import json
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

import httpx
import psutil
from matplotlib.figure import Figure

from jobs import clock, ids
from jobs.dialects import dialect
from jobs.intake.spool import Intake, bounded_lines
from ops.bench.harness.errors import BenchError
from ops.bench.harness.models_files import models_file, sample
from ops.bench.harness.platform import own_platform, save_picture, say, with_spread
from ops.bench.harness.scale import FULL, Scale
from ops.bench.load import workloads
from ops.bench.load.arrivals import poisson
from ops.bench.load.open_loop import Calls, Driver, drive
from ops.bench.probes.memory import MemoryWatch, pids
from ops.bench.results.plots import latencies, shares
from ops.bench.results.report import Report
from ops.supervisor.platform import Platform

ASKED = {
    "validate_mb_per_s": ">= 40",
    "api_memory_growth_mb": "<= 64",
    "call_p99_ratio": "<= 1.2",
}
_FILE_MB, _WARM_UP_MB, _LINE_BYTES = 200.0, 3.0, 1024
_ENDPOINT = "/v1/embeddings"
_VECTORS = sample("batchstring", name="vectors", task="embedding", limits={"max_batch": 500})
"""Takes as long for a launch as *batchstring*, of which the calls are: what is measured is the way
to the device and back."""
_WORKERS, _CALLS_PER_S = 2, 100
_WARM_UP_S, _ALONE_S, _LONGEST_S = 2.0, 20.0, 600.0
_POLL_S = 0.2
_ENDED = {"completed", "failed", "expired", "cancelled"}


@dataclass(frozen=True, slots=True)
class Carried:
    """One batch, from its upload to its files: seconds of each part, and the api's memory."""

    upload_s: float
    validating_s: float
    in_progress_s: float
    finalizing_s: float
    growth_mb: float


@dataclass(frozen=True, slots=True)
class Round:
    alone: Calls
    beside: Calls
    carried: Carried


def run(effort: Scale = FULL) -> None:
    """Calls alone, then beside a batch: in turn."""
    report = Report("batches", ASKED, effort.quick)
    with _input(_WARM_UP_MB) as small, _input(_FILE_MB * effort.share) as path:
        size_mb = path.stat().st_size / 1e6
        report.add(file_mb=size_mb)
        report.add(**with_spread("validate_mb_per_s", [_validate(path) for _ in range(3)]))
        with own_platform(_WORKERS, models_file(sample("batchstring"), _VECTORS)) as platform:
            _carry(platform, small)
            rounds = [_round(platform, path, effort, seed) for seed in range(effort.rounds)]
    _figures(report, rounds, size_mb)
    save_picture("batches", _picture(rounds), effort.quick)
    report.finish()


@contextmanager
def _input(megabytes: float) -> Iterator[Path]:
    """A file of so many (10^6 bytes) of lines, all of one length."""
    random = Random(1)
    words = ["".join(random.choices("abcdefghij", k=random.randint(2, 9))) for _ in range(5000)]
    with tempfile.TemporaryDirectory(prefix="millrace-batches-") as folder:
        path = Path(folder, "requests.jsonl")
        with path.open("wb") as file:
            for n in range(int(megabytes * 1e6 / _LINE_BYTES)):
                file.write(_line(n, " ".join(random.choices(words, k=200))))
        yield path


def _line(n: int, text: str) -> bytes:
    body = {"model": _VECTORS.name, "input": ""}
    line = {
        "custom_id": f"request-{n:07}",
        "method": "POST",
        "url": _ENDPOINT,
        "body": body,
    }
    body["input"] = text[: _LINE_BYTES - 1 - len(json.dumps(line))]
    return json.dumps(line).encode() + b"\n"


def _validate(path: Path) -> float:
    """MB of it that one core checks in a second, and makes rows of."""
    taken: list[Intake] = []

    def open_intake(name: str) -> Intake:
        taken.append(Intake(ids.new(), "bench", _VECTORS, strict=True, max_items=10_000_000))
        return taken[0]

    since_s = time.process_time()
    with path.open("rb") as file:
        lines = bounded_lines(file, _VECTORS.max_line_bytes)
        dialect("openai").read_items(open_intake, lines, {"endpoint": _ENDPOINT})
    took_s = time.process_time() - since_s
    taken[0].close()
    return path.stat().st_size / 1e6 / took_s


def _round(platform: Platform, path: Path, effort: Scale, seed: int) -> Round:
    due_s = poisson(_CALLS_PER_S, _WARM_UP_S + effort.seconds(_ALONE_S), seed)
    alone = drive(workloads.batchstring(platform, due_s)).since(_WARM_UP_S)
    load = workloads.batchstring(platform, poisson(_CALLS_PER_S, _LONGEST_S, seed))
    with Driver(load) as driver:
        driver.go()
        clock.sleep(_WARM_UP_S)
        since_s = clock.monotonic()
        carried = _carry(platform, path)
        until_s = clock.monotonic()
        driver.stop()
        calls = driver.calls()
    if until_s > calls.started_s + _LONGEST_S:
        raise BenchError(f"the batch took longer than {_LONGEST_S:g} s of calls")
    beside = calls.between(since_s, until_s)
    for name, found in (("alone", alone), ("beside a batch", beside)):
        p50, p95, p99 = found.percentiles(50, 95, 99)
        say(f"calls {name}: p50 {p50:.1f}, p95 {p95:.1f}, p99 {p99:.1f} ms; {found.said()}")
    _say_of_parts(beside, since_s, carried)
    return Round(alone, beside, carried)


def _say_of_parts(calls: Calls, since_s: float, carried: Carried) -> None:
    """In which part of a batch's life calls notice it."""
    for name in ("upload_s", "validating_s", "in_progress_s", "finalizing_s"):
        until_s = since_s + getattr(carried, name)
        p99 = calls.between(since_s, until_s).percentiles(99)[0]
        say(f"  {name} = {getattr(carried, name):.1f}: calls p99 {p99:.1f} ms")
        since_s = until_s


def _carry(platform: Platform, path: Path) -> Carried:
    """Uploads the file, makes a batch of it, and waits for its end."""
    api = psutil.Process(pids(platform)["api"])
    processes = {str(one.pid): one.pid for one in (api, *api.children(recursive=True))}
    with httpx.Client(base_url=f"{platform.url}/v1", timeout=600) as http:
        with MemoryWatch(processes) as watch:
            since_s = clock.monotonic()
            with path.open("rb") as file:
                form = {"files": {"file": file}, "data": {"purpose": "batch"}}
                file_id = _answer(http.post("/files", **form))["id"]  # type: ignore[arg-type]
            upload_s = clock.monotonic() - since_s
            asked = {"input_file_id": file_id, "endpoint": _ENDPOINT, "completion_window": "24h"}
            batch, spent_s = _ended(http, _answer(http.post("/batches", json=asked)))
        if batch["status"] != "completed" or "error_file_id" in batch:
            raise BenchError(f"the batch ended as {batch}")
        for id in (file_id, batch["output_file_id"]):
            _answer(http.delete(f"/files/{id}"))
    growth_mb = sum(max(mb) - mb[0] for mb in _megabytes(watch))
    return Carried(
        upload_s,
        spent_s["validating"],
        spent_s["in_progress"],
        spent_s["finalizing"],
        growth_mb,
    )


def _ended(http: httpx.Client, batch: dict[str, Any]) -> tuple[dict[str, Any], dict[str, float]]:
    """The batch at its end, and the seconds that it was seen in each status."""
    spent_s: dict[str, float] = defaultdict(float)
    since_s = clock.monotonic()
    while batch["status"] not in _ENDED:
        clock.sleep(_POLL_S)
        now_s = clock.monotonic()
        spent_s[batch["status"]] += now_s - since_s
        since_s = now_s
        batch = _answer(http.get(f"/batches/{batch['id']}"))
    return batch, spent_s


def _answer(response: httpx.Response) -> dict[str, Any]:
    found: dict[str, Any] = response.raise_for_status().json()
    return found


def _megabytes(watch: MemoryWatch) -> list[list[float]]:
    return [[mb for _, mb in samples] for samples in watch.samples.values()]


def _figures(report: Report, rounds: list[Round], size_mb: float) -> None:
    alone = [each.alone.percentiles(99)[0] for each in rounds]
    beside = [each.beside.percentiles(99)[0] for each in rounds]
    report.add(**with_spread("call_p99_alone_ms", alone))
    report.add(**with_spread("call_p99_ms", beside))
    carried = [each.carried for each in rounds]
    report.add(
        call_p99_ratio=median(beside) / median(alone),
        call_p50_alone_ms=median(each.alone.percentiles(50)[0] for each in rounds),
        call_p50_ms=median(each.beside.percentiles(50)[0] for each in rounds),
        call_errors=sum(each.alone.errors + each.beside.errors for each in rounds),
        api_memory_growth_mb=max(each.growth_mb for each in carried),
        upload_mb_per_s=size_mb / median(each.upload_s for each in carried),
        import_mb_per_s=size_mb / median(each.validating_s for each in carried),
        run_s=median(each.in_progress_s for each in carried),
        export_s=median(each.finalizing_s for each in carried),
    )


def _picture(rounds: list[Round]) -> Figure:
    figure = Figure(figsize=(5, 2.8), layout="constrained")
    axes = figure.subplots()
    shares(axes, latencies(each.alone for each in rounds), "alone")
    shares(axes, latencies(each.beside for each in rounds), "beside a batch")
    axes.set_title("Calls of batchstring")
    axes.legend()
    return figure
