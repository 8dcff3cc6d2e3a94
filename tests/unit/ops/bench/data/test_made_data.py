"""Made data of the benchmarks: the same in each run, of the lengths and rates of real data."""

from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path

import numpy as np
import pytest

from jobs.models.builtin_models import SAMPLES
from ops.bench.data import folder, lengths, texts, traces
from ops.bench.data.lengths import Quantiles
from ops.simulation.traces import Arrival
from workers.engines.minilm import MiniLM
from workers.engines.protocol import Prepared

pytestmark = pytest.mark.heavy

MAKERS: list[Callable[[], object]] = [
    texts.questions, texts.mixed, texts.pairs, traces.hour, traces.busiest,
]  # fmt: skip
SHORT = 2 * 1319
TOLERANCE = 0.1


@pytest.fixture(autouse=True)
def no_folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv(folder.SETTING, raising=False)
    folder.forget()
    yield
    folder.forget()


def answers() -> list[str]:
    return texts.mixed()[1:SHORT:2]


@pytest.mark.parametrize("make", MAKERS)
def test_data_is_made_alike_each_time(make: Callable[[], object]) -> None:
    assert make() == make()
    assert folder.origin() == "made"


@pytest.mark.parametrize(
    ("make", "count", "expected", "tokens"),
    [
        (texts.questions, 1319, lengths.QUESTIONS, 58.1),
        (answers, 1319, lengths.ANSWERS, 106.3),
        (
            lambda: texts.mixed()[SHORT:],
            200,
            lengths.REVIEWS,
            243.5,
        ),  # cut at 256 tokens, as minilm cuts them
        (lambda: list(chain(*texts.pairs()[0])), 2758, lengths.SENTENCES, 14.2),
    ],
)
def test_texts_have_the_lengths_and_the_tokens_of_real_ones(
    make: Callable[[], list[str]], count: int, expected: Quantiles, tokens: float
) -> None:
    words = [len(text.split()) for text in make()]
    assert len(words) == count
    between = [share for share in expected if 0 < share < 1]
    found = np.quantile(words, between)
    assert found == pytest.approx([expected[share] for share in between], rel=TOLERANCE)
    assert expected[0] <= min(words) <= max(words) <= expected[1]
    engine = MiniLM(**{**SAMPLES.resolve("minilm").options, "device": "cpu"})
    sizes = [text.size for text in engine.prepare(make(), {}) if isinstance(text, Prepared)]
    assert sum(sizes) / len(sizes) == pytest.approx(tokens, rel=TOLERANCE)


def test_a_mix_has_short_and_long_texts_and_an_answer_adds_up() -> None:
    mixed = texts.mixed()
    assert sum(len(text) <= 150 for text in mixed) > 200
    assert sum(len(text) >= 1200 for text in mixed) >= 200
    for answer in answers()[:100]:
        *steps, last = answer.splitlines()
        for step in steps:
            sum_, _, result = step.partition("<<")[2].partition(">>")[0].partition("=")
            assert sum(map(int, sum_.split("+"))) == int(result)
        assert last == f"#### {result}"


@pytest.mark.parametrize(
    ("make", "seconds", "per_s", "swing"),
    [(traces.hour, 3500, 5.53, 0.2), (traces.busiest, 300, 7.91, 0.0)],
)
def test_arrivals_have_the_rate_of_a_real_service(
    make: Callable[[], list[Arrival]], seconds: float, per_s: float, swing: float
) -> None:
    """And its swing: the deviation of the rate by minutes over its mean, besides chance."""
    times = np.array([at_s for at_s, _ in make()])
    assert times[0] == 0
    assert (np.diff(times) >= 0).all()
    assert times[-1] == pytest.approx(seconds, rel=0.01)
    assert len(times) / times[-1] == pytest.approx(per_s, rel=0.03)
    counts, _ = np.histogram(times, np.arange(0, seconds + 1, 60))
    variance = max(0.0, counts.var() - counts.mean())
    assert variance**0.5 / counts.mean() == pytest.approx(swing, abs=0.05)


def test_a_folder_that_is_named_is_used_and_nothing_is_made_up_for_what_it_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(folder.SETTING, str(tmp_path))
    for make in (*MAKERS, texts.published_vector):
        with pytest.raises(folder.BenchError, match="there is no"):
            make()
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "gsm8k_test.jsonl").write_text('{"question": "Why?", "answer": "So."}\n')
    folder.forget()
    assert texts.questions() == ["Why?"]
    assert folder.origin() == "real"
