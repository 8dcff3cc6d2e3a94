"""Files of arrivals, also with tokens: what is read of them, and what is said of wrong ones."""

from pathlib import Path

import pytest

from jobs.models.builtin_models import SAMPLES
from ops.simulation import generation_trace, traces
from ops.simulation.traces import TraceError
from tests.support.cases import each
from tests.support.command_line import json_of, run_millrace

SECONDS = "t_s,in_tokens,out_tokens\n10.5,4092,45\n10.0,425,87\n"
MOMENTS = (
    "TIMESTAMP,ContextTokens,GeneratedTokens\n"
    "2023-11-16 23:59:59.6805900,374,44\n"
    "2023-11-17 00:00:01.6805900,0,109\n"
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "trace.csv"


@pytest.mark.parametrize(
    ("text", "arrivals"),
    [
        (SECONDS, [(0.0, 425), (0.5, 4092)]),
        (MOMENTS, [(0.0, 374), (2.0, 0)]),
        ("TIMESTAMP\n2023-11-16T18:15:46\n", [(0.0, 1)]),
        ("3\n1.5\n\n2\n", [(0.0, 1), (0.5, 1), (1.5, 1)]),
    ],
    ids=["seconds", "moments", "no sizes", "plain"],
)
def test_arrivals_are_in_order(path: Path, text: str, arrivals: list[tuple[float, int]]) -> None:
    path.write_text(text)
    assert traces.read(path) == arrivals


def test_what_is_wrong_with_a_file_is_said_with_its_line(path: Path) -> None:
    wrong = {
        "": "is empty",
        "t_s,in_tokens\n": "no arrivals",
        "when,how_much\n1,2\n": "line 1: no column t_s or TIMESTAMP in 'when,how_much'",
        "soon\n": "line 1: no column",
        "1\n2\nsoon\n": "line 3: 'soon' is not a number of seconds",
        "1\nnan\n": "line 2: 'nan' is not a number of seconds",
        "t_s,in_tokens\n1,many\n": "line 2: 'many' is not a whole number of tokens",
        "t_s,in_tokens\n1\n": "line 2: 1 columns",
        "TIMESTAMP\nnoon\n": "line 2: 'noon' is not a time like 2023-11-16",
    }
    with pytest.raises(TraceError, match="can't be read: No such file"):
        traces.read(path)
    for text, case in each(wrong, name=repr):
        path.write_text(text)
        with case, pytest.raises(TraceError, match=wrong[text]) as caught:
            traces.read(path)
        assert str(path) in caught.value.message
    path.write_bytes(b"\xff\xfe\n")
    with pytest.raises(TraceError, match="is no text"):
        traces.read(path)


def test_sizes_are_cut_to_the_longest_bucket_and_times_compressed() -> None:
    arrivals = [(0.0, 0), (1.0, 100), (2.0, 4092)]
    assert traces.fitted(arrivals, SAMPLES.resolve("minilm")) == [(0.0, 1), (1.0, 100), (2.0, 256)]
    assert traces.fitted(arrivals, SAMPLES.resolve("batchstring")) == [(0.0, 1), (1.0, 1), (2.0, 1)]
    arrivals = [(float(n), 1) for n in range(11)]
    assert traces.rate_per_s(arrivals) == 1.0
    assert traces.rate_per_s(traces.compressed(arrivals, 5)) == 5.0
    assert traces.rate_per_s([(0.0, 1)]) == 1.0


TRACE = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:15:50.9951690,396,109
2023-11-16 18:15:46.6805900,374,44
"""


@pytest.fixture
def generation(tmp_path: Path) -> Path:
    path = tmp_path / "trace.csv"
    path.write_text(TRACE)
    return path


def test_arrivals_are_read_in_order_with_their_tokens(generation: Path) -> None:
    first, second = generation_trace.read(generation)
    assert (first.at_s, first.input, first.output) == (0.0, 374, 44)
    assert second.at_s == pytest.approx(4.3146, abs=0.001)


def test_what_is_no_trace_is_refused_with_its_line(path: Path) -> None:
    for text, said in (
        ("t_s,in_tokens\n1,2\n", "GeneratedTokens"),
        ("t_s,in_tokens,out_tokens\n", "no arrivals"),
        ("t_s,in_tokens,out_tokens\n1,x,2\n", "line 2"),
    ):
        path.write_text(text)
        with pytest.raises(TraceError, match=said):
            generation_trace.read(path)


def test_the_command_prints_times_tokens_and_preemptions(generation: Path) -> None:
    shown = run_millrace("simulate", "--generation", str(generation)).output
    assert "first token" in shown
    assert "preemptions" in shown
    figures = json_of("simulate", f"--generation={generation}", "--job")
    assert figures["calls_tokens"] == 153
    assert figures["items_tokens"] > 0
    shown = run_millrace("simulate", "--help").output  # the one of launches
    assert "--replicas" in shown
    assert "--generation TRACE" in shown
