"""`millrace bench embed`: are the vectors right, and is a job as fast as the library alone?"""

import csv
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import orjson
from matplotlib.figure import Figure
from scipy.stats import spearmanr

from jobs import clock, ids
from jobs.store import db
from jobs.store.jobs import detail
from ops.bench.baselines.sentence_transformers import SentenceTransformersBaseline
from ops.bench.harness.platform import (
    BenchError,
    data_file,
    own_platform,
    save_picture,
    say,
    with_spread,
)
from ops.bench.load.ndjson_client import Stream
from ops.bench.probes import memory
from ops.bench.results.report import Report
from ops.supervisor.platform import Platform

ASKED = {
    "sts_spearman": "0.8203 ± 0.0005",
    "golden_max_diff": "<= 1e-3",
    "batch_mates_max_diff": "<= 1e-5",
    "embed_vs_encode": ">= 0.95",
}
_RUNS = 3
_ALONE = 5  # texts that are embedded once more, each in a call of its own


def run() -> None:
    """Embeds the pairs of the STS benchmark's test set."""
    with data_file("stsb-en-test.csv").open(newline="", encoding="utf-8") as file:
        pairs = [(first, second, float(score)) for first, second, score in csv.reader(file)]
    golden = json.loads(data_file("minilm_golden_triton.json").read_text())
    sentences = [text for first, second, _ in pairs for text in (first, second)]
    report = Report("embed", ASKED)
    with own_platform() as platform, SentenceTransformersBaseline(sentences) as rival:
        jobs = Jobs(platform, sentences)
        rates = _rates(jobs, rival)
        _compare(report, rates)
        report.add(
            sts_spearman=_spearman(jobs.vectors, [score for *_, score in pairs]),
            golden_max_diff=jobs.call_differs(golden["input"], golden["embedding"]),
            batch_mates_max_diff=max(
                jobs.call_differs(sentences[seq], jobs.vectors[seq])
                for seq in range(0, len(sentences), len(sentences) // _ALONE)
            ),
            **_launches(platform, jobs.last),
            **{f"{n}_rss_mb": memory.rss_mb(pid) for n, pid in memory.pids(platform).items()},
        )
    save_picture("embed", _picture(rates))
    report.finish()


class Jobs:
    """Embeds the same sentences again and again, a job each time."""

    def __init__(self, platform: Platform, sentences: Sequence[str]) -> None:
        self._stream, self._sentences = Stream(platform.url), sentences
        self.last = ""
        self.vectors: Any = None

    def seconds(self) -> float:
        """From the first byte posted to the last result read; the vectors are kept."""
        since_s = clock.monotonic()
        self.last = self._stream.post("minilm", self._sentences)
        lines = list(self._stream.results(self.last))
        took_s = clock.monotonic() - since_s
        results = [orjson.loads(line) for line in lines]
        if [result["seq"] for result in results] != list(range(len(self._sentences))):
            raise BenchError(f"{len(results)} results are too few, or out of order")
        self.vectors = np.array([result["output"] for result in results])
        return took_s

    def call_differs(self, text: str, vector: Any) -> float:
        """The largest difference between a text's vector through /infer and another one."""
        return float(np.abs(np.array(self._stream.call("minilm", text)) - vector).max())


def _rates(jobs: Jobs, rival: SentenceTransformersBaseline) -> dict[str, list[float]]:
    """Items a second of each side, in turn: a slow minute of the machine slows all of them."""
    sides: dict[str, Callable[[], float]] = {
        "embed": jobs.seconds,
        "encode": lambda: rival.seconds("encode"),
    }
    if rival.has_gpu:
        sides["bare_loop"] = lambda: rival.seconds("bare_loop")
    for side in sides.values():
        side()  # warms up
    rates: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(_RUNS):
        for name, side in sides.items():
            rates[name].append(len(jobs.vectors) / side())
            say(f"{name}: {rates[name][-1]:.1f} items/s")
    return rates


def _compare(report: Report, rates: Mapping[str, Sequence[float]]) -> None:
    for name, values in rates.items():
        report.add(**with_spread(f"{name}_items_per_s", values))
    embed = report.figures["embed_items_per_s"]
    report.add(embed_vs_encode=embed / report.figures["encode_items_per_s"])
    if "bare_loop" in rates:
        report.add(embed_vs_bare_loop_gpu=embed / report.figures["bare_loop_items_per_s"])


def _spearman(vectors: Any, scores: Sequence[float]) -> float:
    """Rank correlation of cosine similarity (vectors are of unit length) with human scores.

    vectors: [2 * pairs, 384], the two of a pair side by side.
    """
    cosines = (vectors[0::2] * vectors[1::2]).sum(axis=1)
    return float(spearmanr(cosines, scores).statistic)


def _launches(platform: Platform, job: str) -> dict[str, float]:
    database = db.connect(platform.settings.database_url, pool_size=1)
    id = ids.parse("job", job)
    assert id
    with database.connect() as tx:
        found = detail.launch_figures(tx, id)
    database.dispose()
    return {"mean_launch": found.mean_size, "padding_share": found.padding_share}


def _picture(rates: Mapping[str, Sequence[float]]) -> Figure:
    figure = Figure(figsize=(5, 2.2), layout="constrained")
    axes = figure.subplots()
    for row, values in enumerate(rates.values()):
        axes.barh(row, sorted(values)[len(values) // 2], color="#9ecae1")
        axes.plot(values, [row] * len(values), "o", color="#08519c", markersize=4)
    axes.set_yticks(range(len(rates)), [name.replace("_", " ") for name in rates])
    axes.invert_yaxis()
    axes.set_xlabel("sentences a second (each run, and the median)")
    axes.set_title("A job through the platform, and the library alone")
    return figure
