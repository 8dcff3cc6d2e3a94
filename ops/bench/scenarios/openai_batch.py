"""`millrace bench batches`: a file of lines of 1 KB through OpenAI's Batch API.

Measures how fast its lines are checked, how much memory the api takes for it, and how it slows
calls of another model.
"""

import json
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import httpx
import psutil

from jobs import clock, ids
from jobs.dialects import dialect
from jobs.intake.lines import bounded_lines
from jobs.intake.spool import Intake
from ops.bench.harness.errors import BenchError
from ops.bench.harness.models_files import models_file, sample
from ops.bench.harness.platform import own_platform, say
from ops.bench.harness.scale import Scale
from ops.bench.load import workloads
from ops.bench.probes.memory import pids, watch_memory
from ops.bench.results.plots import picture
from ops.bench.results.report import Report, scenario
from ops.bench.results.side_by_side import Pair, measure_pair, plot_pairs, report_pairs
from ops.supervisor.platform import Platform

_FILE_MB, _WARM_UP_MB, _LINE_BYTES = 200.0, 3.0, 1024
_ENDPOINT = "/v1/embeddings"
# Takes as long for a launch as *batchstring*, which the calls use: the scenario measures the route
# to the device and back.
_VECTORS = sample("batchstring", name="vectors", task="embedding", limits={"max_batch": 500})
_WORKERS, _CALLS_PER_S = 2, 100
_ALONE_S, _LONGEST_S = 20.0, 600.0
_POLL_S = 0.2
_ENDED = {"completed", "failed", "expired", "cancelled"}
_PARTS = ("upload", "validating", "in_progress", "finalizing")


@dataclass(frozen=True, slots=True)
class Batch:
    """One batch, from its upload to its files."""

    began_s: float  #: monotonic
    spent_s: dict[str, float]  #: seconds of each part
    growth_mb: float  #: memory of the api


@scenario(
    "batches",
    "validate_mb_per_s >= 40",
    "api_memory_growth_mb <= 64",
    "call_p99_ratio <= 1.2",
)
def run(report: Report, scale: Scale) -> Any:
    """Measures calls alone, then during a batch, in turn."""
    with _input(_WARM_UP_MB) as small, _input(_FILE_MB * scale.share) as path:
        size_mb = path.stat().st_size / 1e6
        report.add(file_mb=size_mb)
        report.spread(validate_mb_per_s=[_validate(path) for _ in range(3)])
        with own_platform(_WORKERS, models_file(sample("batchstring"), _VECTORS)) as platform:
            _run_batch(platform, small)
            pairs = [_pair(platform, path, scale, seed) for seed in range(scale.rounds)]
    report_pairs(report, pairs)
    batches = [pair.work for pair in pairs]
    report.add(api_memory_growth_mb=max(batch.growth_mb for batch in batches))
    report.median(
        upload_mb_per_s=(size_mb / batch.spent_s["upload"] for batch in batches),
        import_mb_per_s=(size_mb / batch.spent_s["validating"] for batch in batches),
        run_s=(batch.spent_s["in_progress"] for batch in batches),
        export_s=(batch.spent_s["finalizing"] for batch in batches),
    )
    figure, axes = picture(1, 5)
    plot_pairs(axes, pairs, "Calls of batchstring", "beside a batch")
    return figure


@contextmanager
def _input(megabytes: float) -> Iterator[Path]:
    """Writes a file of so many 10^6 bytes, in lines of one length."""
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
    line = {"custom_id": f"request-{n:07}", "method": "POST", "url": _ENDPOINT, "body": body}
    body["input"] = text[: _LINE_BYTES - 1 - len(json.dumps(line))]
    return json.dumps(line).encode() + b"\n"


def _validate(path: Path) -> float:
    """MB a second that one core checks and turns into rows."""
    taken: list[Intake] = []

    def open_intake(name: str) -> Intake:
        """Intake that keeps nothing."""
        taken.append(Intake(ids.new(), "bench", _VECTORS, strict=True, max_items=10_000_000))
        return taken[0]

    since_s = time.process_time()
    with path.open("rb") as file:
        lines = bounded_lines(file, _VECTORS.max_line_bytes)
        dialect("openai").read_items(open_intake, lines, {"endpoint": _ENDPOINT})
    took_s = time.process_time() - since_s
    taken[0].close()
    return path.stat().st_size / 1e6 / took_s


def _pair(platform: Platform, path: Path, scale: Scale, seed: int) -> Pair[Batch]:
    pair = measure_pair(
        lambda due_s: workloads.batchstring(platform, due_s),
        _CALLS_PER_S,
        lambda: _run_batch(platform, path),
        scale,
        seed,
        alone_s=_ALONE_S,
        longest_s=_LONGEST_S,
    )
    since_s = pair.work.began_s
    for name in _PARTS:
        took_s = pair.work.spent_s[name]
        if len(calls := pair.during.between(since_s, since_s + took_s)):
            say(f"  {name} = {took_s:.1f} s: calls p99 {calls.percentiles(99)[0]:.1f} ms")
        since_s += took_s
    return pair


def _run_batch(platform: Platform, path: Path) -> Batch:
    """Uploads the file, makes a batch of it, and waits for its end."""
    api = psutil.Process(pids(platform)["api"])
    processes = {str(one.pid): one.pid for one in (api, *api.children(recursive=True))}
    spent_s: dict[str, float] = defaultdict(float)
    with httpx.Client(base_url=f"{platform.url}/v1", timeout=600) as http:
        with watch_memory(processes) as watched:
            began_s = clock.monotonic()
            with path.open("rb") as file:
                sent = http.post("/files", files={"file": file}, data={"purpose": "batch"})
            file_id = _json(sent)["id"]
            spent_s["upload"] = clock.monotonic() - began_s
            request = {"input_file_id": file_id, "endpoint": _ENDPOINT, "completion_window": "24h"}
            batch = _json(http.post("/batches", json=request))
            since_s = clock.monotonic()
            while batch["status"] not in _ENDED:
                clock.sleep(_POLL_S)
                now_s = clock.monotonic()
                spent_s[batch["status"]] += now_s - since_s
                since_s, batch = now_s, _json(http.get(f"/batches/{batch['id']}"))
        if batch["status"] != "completed" or "error_file_id" in batch:
            raise BenchError(f"the batch ended as {batch}")
        for id in (file_id, batch["output_file_id"]):
            http.delete(f"/files/{id}").raise_for_status()
    memory = [[mb for _, mb in samples] for samples in watched.values()]
    return Batch(began_s, spent_s, sum(max(mb) - mb[0] for mb in memory))


def _json(response: httpx.Response) -> dict[str, Any]:
    found: dict[str, Any] = response.raise_for_status().json()
    return found
