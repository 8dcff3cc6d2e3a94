"""`millrace bench embed`: accuracy of the vectors, and speed of a job next to the library alone."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from functools import partial
from typing import Any

import numpy as np
from scipy.stats import spearmanr

from ops.bench.baselines.encoders import encoder, reference_vectors
from ops.bench.data import texts
from ops.bench.harness.platform import own_platform, rate, say
from ops.bench.harness.scale import FULL, Scale
from ops.bench.load.client import Client
from ops.bench.load.submissions import launch_figures
from ops.bench.probes import memory
from ops.bench.results.plots import bars, picture
from ops.bench.results.report import Report, scenario

_ALONE = 5  # texts that are embedded once more, each in a call of its own


@scenario(
    "embed",
    "sts_spearman 0.8203 ± 0.0005",
    "golden_max_diff <= 1e-3",
    "batch_mates_max_diff <= 1e-5",
    "least_cosine >= 0.9995",
    "embed_vs_encode >= 0.95",
)
def run(report: Report, _: Scale) -> Any:
    """Embeds pairs of sentences, those of the STS benchmark's test set or made ones, and texts of
    mixed length."""
    pairs, scores = texts.pairs()
    sentences = [text for pair in pairs for text in pair]
    with own_platform() as platform, closing(Client(platform.url)) as client:
        rates = _rates(client, sentences)
        job = client.run_job("minilm", sentences)
        vectors = np.array(job.outputs)

        def difference(text: str, vector: Any) -> float:
            """Largest difference between a text's vector through /infer and another one."""
            return float(np.abs(np.array(client.call("minilm", text)) - vector).max())

        _compare(report, rates)
        report.add(least_cosine=_least_cosine(client, texts.mixed()))
        if scores:
            report.add(sts_spearman=_spearman(vectors, scores))
        else:
            report.leave_out(
                "sts_spearman", "people scored no made pairs; MILLRACE_SHARED has some"
            )
        if golden := texts.published_vector():
            report.add(golden_max_diff=difference(*golden))
        else:
            report.leave_out("golden_max_diff", "the published vector is in MILLRACE_SHARED only")
        launches = launch_figures(platform, job.id)
        report.add(
            batch_mates_max_diff=max(
                difference(sentences[seq], vectors[seq])
                for seq in range(0, len(sentences), len(sentences) // _ALONE)
            ),
            mean_launch=launches.mean_size,
            padding_share=launches.padding_share,
            **{f"{n}_rss_mb": memory.rss_mb(pid) for n, pid in memory.pids(platform).items()},
        )
    figure, axes = picture(1, 5, 2.2)
    title = "A job through the platform, and the library alone"
    bars(axes, rates, title, "sentences a second (each run, and the median)")
    return figure


def _rates(client: Client, sentences: Sequence[str]) -> dict[str, list[float]]:
    """Items a second of each side, in turn."""
    with ExitStack() as stack:
        device, encode = stack.enter_context(encoder(sentences, "sentence-transformers"))
        sides: dict[str, Callable[[], float]] = {
            "embed": lambda: client.run_job("minilm", sentences).seconds,
            "encode": partial(encode, 1),
        }
        if device != "cpu":
            _, bare = stack.enter_context(encoder(sentences, "bare", "", "minilm"))
            sides["bare_loop"] = partial(bare, 1)
        for seconds in sides.values():
            seconds()  # warms up
        return FULL.in_turn(
            {name: rate(name, len(sentences), seconds) for name, seconds in sides.items()}
        )


def _compare(report: Report, rates: Mapping[str, Sequence[float]]) -> None:
    for name, values in rates.items():
        report.spread(f"{name}_", items_per_s=values)
    embed = report.figures["embed_items_per_s"]
    report.add(embed_vs_encode=embed / report.figures["encode_items_per_s"])
    if "bare_loop" in rates:
        report.add(embed_vs_bare_loop_gpu=embed / report.figures["bare_loop_items_per_s"])


def _least_cosine(client: Client, mixed: Sequence[str]) -> float:
    """Least cosine similarity of a text's vector by a job and by sentence-transformers in float32
    on the CPU, whatever the workers' device, type and layout."""
    vectors = np.array(client.run_job("minilm", mixed).outputs)
    say(f"{len(mixed):,} texts of mixed length once more, by sentence-transformers on the CPU")
    cosines = (vectors * reference_vectors(mixed)).sum(axis=1) / np.linalg.norm(vectors, axis=1)
    return float(cosines.min())


def _spearman(vectors: Any, scores: Sequence[float]) -> float:
    """Rank correlation of cosine similarity with human scores.

    vectors: [2 * pairs, 384], of unit length, the two of a pair next to each other.
    """
    cosines = (vectors[0::2] * vectors[1::2]).sum(axis=1)
    return float(spearmanr(cosines, scores).statistic)
