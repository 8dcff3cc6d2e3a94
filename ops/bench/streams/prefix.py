"""Prefix cache: time to the first token of calls whose prompt begins as an earlier one's, and a job
whose items share their beginning."""

import statistics
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx

from jobs import clock
from jobs.models.model import Limits, Model
from ops.bench.harness import random_llama
from ops.bench.harness.models_files import models_file
from ops.bench.harness.platform import own_platform, say
from ops.bench.harness.random_llama import Size
from ops.bench.harness.scale import Scale
from ops.bench.load.client import Client
from ops.bench.results.report import Report
from ops.supervisor.platform import Platform

ASKED = (
    "prefix_ttft_gain >= 2",
    "prefix_cached_share >= 0.95",
    "items_prefix_computed <= 1.1",
)
_SMALL = Size(512, 384, 1024, 8, 6, 2, 2048)  # 14 M parameters: a prompt costs more than HTTP
_NAME = "small"
_PREFIX = 500  # tokens; a character is one
_BLOCK = 16  # tokens
_CALLS, _ITEMS = 20, 40
_READY_WITHIN_S = 120.0


def measure(report: Report, scale: Scale) -> None:
    """Measures calls, then a job, on one worker."""
    with _platform() as platform:
        _calls(report, platform, int(scale.seconds(_CALLS)))
        _items(report, platform, int(scale.seconds(_ITEMS)))


@contextmanager
def _platform() -> Iterator[Platform]:
    with TemporaryDirectory(prefix="millrace-bench-") as folder:
        saved: Mapping[str, Any] = random_llama.save(Path(folder), _SMALL, "float32")
        options = {**saved, "device": "cpu", "threads": 1, "block_tokens": _BLOCK}
        model = Model(
            _NAME, "1", "transformers", options=options, limits=Limits(), target_ttft_ms=600_000
        )
        with own_platform(models=models_file(model)) as platform:
            yield platform


def _prefix(n: int) -> str:
    """Returns a beginning that no other number has."""
    return (f"Rules of house {n}: " + f"be kind to guest {n * 7919}, " * _PREFIX)[:_PREFIX]


def _input(prefix: str, question: str) -> dict[str, Any]:
    return {"prompt": f"{prefix} {question}", "max_tokens": 1, "temperature": 0}


def _calls(report: Report, platform: Platform, count: int) -> None:
    """The first call with a prefix computes it, the second one finds it."""
    fresh_ms, cached_ms, shares = list[float](), list[float](), list[float]()
    with httpx.Client(base_url=platform.url, timeout=_READY_WITHIN_S) as http:
        _timed(http, _input(_prefix(-1), "are you there?"))
        for n in range(count):
            prefix = _prefix(n)
            fresh_ms.append(_timed(http, _input(prefix, "who?"))[0])
            took_ms, share = _timed(http, _input(prefix, "why?"))
            cached_ms.append(took_ms)
            shares.append(share)
    fresh, cached = statistics.median(fresh_ms), statistics.median(cached_ms)
    say(f"first token of {_PREFIX} tokens: {fresh:.1f} ms, with them in the cache {cached:.1f} ms")
    report.add(
        prefix_ttft_gain=fresh / cached,
        prefix_fresh_ttft_p50_ms=fresh,
        prefix_cached_ttft_p50_ms=cached,
        prefix_cached_share=statistics.median(shares),
    )


def _timed(http: httpx.Client, value: Mapping[str, Any]) -> tuple[float, float]:
    """Returns the time of a call that ends with its first token, ms, and the share of the prefix
    that was billed as cached."""
    since_s = clock.monotonic()
    answer = http.post("/infer", json={"model": _NAME, "input": value, "timeout_ms": 100_000})
    took_ms = (clock.monotonic() - since_s) * 1000
    usage = answer.raise_for_status().json()["output"]["usage"]
    return took_ms, usage["prompt_tokens_details"]["cached_tokens"] / _PREFIX


def _items(report: Report, platform: Platform, count: int) -> None:
    """Counts how often the shared beginning of a job's items is computed, by their bills."""
    prefix, questions = _prefix(-2), [f"{n:04} is what?" for n in range(count)]
    with closing(Client(platform.url)) as client:
        job = client.run_job(_NAME, [{"input": _input(prefix, one)} for one in questions])
    usages = [output["usage"] for output in job.outputs]
    fresh = sum(
        usage["prompt_tokens"] - usage["prompt_tokens_details"]["cached_tokens"] for usage in usages
    )
    shared = _PREFIX // _BLOCK * _BLOCK  # whole blocks can be shared
    own = sum(usage["prompt_tokens"] - shared for usage in usages)
    report.add(items_prefix_computed=(fresh - own) / shared)
