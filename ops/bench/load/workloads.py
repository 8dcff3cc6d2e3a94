"""The calls that benchmarks make: of which model, with which texts, in an open or a closed loop."""

import json
from collections.abc import Sequence
from random import Random
from typing import Any

from jobs import clock
from ops.bench.harness.platform import data_file
from ops.bench.load.open_loop import Calls, Driver, Load
from ops.supervisor.platform import Platform

TEXTS = [f"text {n} for batchstring" for n in range(500)]
"""Upper-cased they are what `batchstring` answers."""

_MOST_PER_S = 2000  # calls that a closed loop may need


def infer(
    platform: Platform,
    model: str,
    inputs: Sequence[Any],
    due_s: Sequence[float],
    outputs: Sequence[Any] | None = None,
    keys: Sequence[str] = (),
    most_in_flight: int = 0,
) -> Load:
    """Calls of one model, through POST /infer."""
    bodies = [json.dumps({"model": model, "input": value}) for value in inputs]
    return Load(f"{platform.url}/infer", due_s, bodies, outputs, keys, most_in_flight)


def batchstring(platform: Platform, due_s: Sequence[float], keys: Sequence[str] = ()) -> Load:
    """keys: API keys, which the calls take in turn; empty: they come without."""
    texts = [TEXTS[n % len(TEXTS)] for n in range(max(len(TEXTS), len(keys)))]
    whose = [keys[n % len(keys)] for n in range(len(texts))] if keys else ()
    return infer(platform, "batchstring", texts, due_s, [text.upper() for text in texts], whose)


def peak_per_s(
    platform: Platform, model: str, inputs: Sequence[str], in_flight: int,
    warm_up_s: float, seconds: float,
) -> float:  # fmt: skip
    """Calls a second that a model answers when so many of them always wait or run."""
    due_s = [0.0] * int(_MOST_PER_S * (warm_up_s + seconds))
    load = infer(platform, model, inputs, due_s, most_in_flight=in_flight)
    with Driver(load) as driver:
        driver.go()
        clock.sleep(warm_up_s + seconds)
        driver.stop()
        calls = driver.calls()
    return per_s(calls, warm_up_s, warm_up_s + seconds)


def per_s(calls: Calls, since_s: float, until_s: float) -> float:
    """Right answers a second that came in a part of the run, in seconds from its start."""
    within = (calls.ended_s >= since_s) & (calls.ended_s < until_s)
    return float((calls.right & within).sum()) / (until_s - since_s)


def questions() -> list[str]:
    """The questions of gsm8k, each about 60 tokens."""
    return [row["question"] for row in _rows("gsm8k_test.jsonl")]


def mixed(seed: int = 1) -> list[str]:
    """Short texts and long ones, in any order: questions and answers of gsm8k, film reviews."""
    rows = _rows("gsm8k_test.jsonl")
    texts = [row[part] for row in rows for part in ("question", "answer")]
    texts += [row["text"] for row in _rows("movie_reviews_200.jsonl")]
    Random(seed).shuffle(texts)
    return texts


def _rows(name: str) -> list[Any]:
    return [json.loads(line) for line in data_file(name).read_text().splitlines()]
