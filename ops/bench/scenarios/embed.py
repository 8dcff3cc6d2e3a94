"""`millrace bench embed`: accuracy of the vectors, and speed of a job next to the library alone."""

import csv
import json
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from typing import Any

import numpy as np
from scipy.stats import spearmanr

from jobs import ids
from jobs.store.jobs import detail
from ops.bench.baselines.bare_engine_loop import bare_loop
from ops.bench.baselines.sentence_transformers import sentence_transformers
from ops.bench.harness.platform import data_file, database_of, own_platform, say
from ops.bench.harness.scale import Scale
from ops.bench.load.client import Client
from ops.bench.probes import memory
from ops.bench.results.plots import bars, picture
from ops.bench.results.report import Report, scenario
from ops.supervisor.platform import Platform

_RUNS = 3
_ALONE = 5  # texts that are embedded once more, each in a call of its own


@scenario(
    "embed",
    "sts_spearman 0.8203 ± 0.0005",
    "golden_max_diff <= 1e-3",
    "batch_mates_max_diff <= 1e-5",
    "embed_vs_encode >= 0.95",
)
def run(report: Report, scale: Scale) -> Any:
    """Embeds the pairs of the STS benchmark's test set."""
    with data_file("stsb-en-test.csv").open(newline="", encoding="utf-8") as file:
        pairs = [(first, second, float(score)) for first, second, score in csv.reader(file)]
    golden = json.loads(data_file("minilm_golden_triton.json").read_text())
    sentences = [text for first, second, _ in pairs for text in (first, second)]
    with own_platform() as platform, closing(Client(platform.url)) as client:
        rates = _rates(client, sentences)
        job = client.run_job("minilm", sentences)
        vectors = np.array(job.outputs)

        def difference(text: str, vector: Any) -> float:
            """Largest difference between a text's vector through /infer and another one."""
            return float(np.abs(np.array(client.call("minilm", text)) - vector).max())

        _compare(report, rates)
        report.add(
            sts_spearman=_spearman(vectors, [score for *_, score in pairs]),
            golden_max_diff=difference(golden["input"], golden["embedding"]),
            batch_mates_max_diff=max(
                difference(sentences[seq], vectors[seq])
                for seq in range(0, len(sentences), len(sentences) // _ALONE)
            ),
            **_launches(platform, job.id),
            **{f"{n}_rss_mb": memory.rss_mb(pid) for n, pid in memory.pids(platform).items()},
        )
    figure, axes = picture(1, 5, 2.2)
    title = "A job through the platform, and the library alone"
    bars(axes, rates, title, "sentences a second (each run, and the median)")
    return figure


def _rates(client: Client, sentences: Sequence[str]) -> dict[str, list[float]]:
    """Items a second of each side, in turn: a slow minute of the machine slows all of them."""
    with ExitStack() as stack:
        has_gpu, encode = stack.enter_context(sentence_transformers(sentences))
        sides: dict[str, Callable[[], float]] = {
            "embed": lambda: client.run_job("minilm", sentences).seconds,
            "encode": encode,
        }
        if has_gpu:
            _, bare = stack.enter_context(bare_loop(None, "minilm", sentences))
            sides["bare_loop"] = lambda: bare(1)
        for side in sides.values():
            side()  # warms up
        rates: dict[str, list[float]] = {name: [] for name in sides}
        for _ in range(_RUNS):
            for name, side in sides.items():
                rates[name].append(len(sentences) / side())
                say(f"{name}: {rates[name][-1]:.1f} items/s")
    return rates


def _compare(report: Report, rates: dict[str, list[float]]) -> None:
    report.spread(**{f"{name}_items_per_s": values for name, values in rates.items()})
    embed = report.figures["embed_items_per_s"]
    report.add(embed_vs_encode=embed / report.figures["encode_items_per_s"])
    if "bare_loop" in rates:
        report.add(embed_vs_bare_loop_gpu=embed / report.figures["bare_loop_items_per_s"])


def _spearman(vectors: Any, scores: Sequence[float]) -> float:
    """Rank correlation of cosine similarity with human scores.

    vectors: [2 * pairs, 384], of unit length, the two of a pair next to each other.
    """
    cosines = (vectors[0::2] * vectors[1::2]).sum(axis=1)
    return float(spearmanr(cosines, scores).statistic)


def _launches(platform: Platform, job: str) -> dict[str, float]:
    id = ids.parse("job", job)
    assert id
    with database_of(platform) as database, database.connect() as tx:
        found = detail.launch_figures(tx, id)
    return {"mean_launch": found.mean_size, "padding_share": found.padding_share}
