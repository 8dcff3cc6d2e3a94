"""Files of arrivals and of histories: what is read of them, and what is said of wrong ones."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from jobs.models.builtin_models import SAMPLES
from ops.cli.main import main
from ops.simulation import generation_trace, history, traces
from ops.simulation.history import Row
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


ROWS = [
    Row(1000.0, 60.0, "calls", "shout@1", 120.0, 1200.0, 3.5),
    Row(1060.0, 60.0, "calls", "shout@1", 6.0, 60.0, 0.5),
    Row(1060.0, 60.0, "items", "shout@1", 1000.0),
    Row(900.0, 300.0, "work", "gpu", 2.5),
]


@pytest.mark.parametrize("name", ["history.csv", "history.parquet"])
def test_what_is_written_is_read_again(tmp_path: Path, name: str) -> None:
    if name.endswith("parquet"):
        pytest.importorskip("pyarrow")
    assert history.write(tmp_path / name, ROWS) == 4
    assert history.is_history(tmp_path / name)
    assert history.read(tmp_path / name) == sorted(ROWS, key=lambda row: (row.t_s, row.kind))
    (tmp_path / "trace.csv").write_text("t_s,in_tokens\n0,5\n")
    assert not history.is_history(tmp_path / "trace.csv")
    assert not history.is_history(tmp_path / "absent.csv")


def test_calls_of_a_minute_come_at_random_within_it_in_the_busiest_time() -> None:
    found = history.arrivals(ROWS, "shout@1", 1000)
    assert len(found) == 126
    assert found[0][0] == 0
    assert found == sorted(found)
    assert {size for _, size in found} == {10}
    assert found == history.arrivals(ROWS, "shout@1", 1000)
    assert sum(at_s < 60 for at_s, _ in found) >= 120
    with pytest.raises(TraceError, match=r"no calls of other@1; it has shout@1"):
        history.arrivals(ROWS, "other@1", 1000)
    rows = [Row(60.0 * n, 60.0, "calls", "m@1", 10.0 * (n + 1)) for n in range(10)]
    assert len(history.arrivals(rows, "m@1", 270)) == 100 + 90 + 80
    assert len(history.arrivals(rows, "m@1", 1)) == 100


def test_what_is_wrong_is_said_with_its_line(tmp_path: Path) -> None:
    wrong = {
        "": "has no rows",
        "0,60,calls,m@1,x,0,0": "could not convert",
        "0,60,calls,m@1,-1,0,0": "below 0",
        "0,0,calls,m@1,1,0,0": "lasts_s must be above 0",
        "0,60,cals,m@1,1,0,0": "kind 'cals' is none of calls, items, work",
        "0,60,calls,m@1": "no column count, units, device_s",
    }
    path = tmp_path / "history.csv"
    for text, case in each(wrong):
        path.write_text(f"t_s,lasts_s,kind,name,count,units,device_s\n{text}\n")
        with case, pytest.raises(TraceError, match=wrong[text]):
            history.read(path)


def test_a_history_is_work_for_the_autoscaler_or_a_trace_of_one_model(tmp_path: Path) -> None:
    rows = [Row(300.0 * n, 300.0, "work", "gpu", 2.0 + 3 * (n >= 6)) for n in range(12)]
    history.write(tmp_path / "history.csv", rows)
    words = ["simulate", "--autoscale", str(tmp_path / "history.csv")]
    assert json_of(*words)["mean_replicas"] == 3.5
    said = CliRunner().invoke(main, [*words, "--pool", "cpu"]).output
    assert "the history has no pool 'cpu'; it has gpu" in said
    rows = [Row(60.0 * n, 60.0, "calls", "batchstring@1", 600.0, 600.0) for n in range(3)]
    history.write(tmp_path / "history.csv", rows)
    trace = ("--trace", str(tmp_path / "history.csv"))
    found = json_of("plan", *trace, "--model", "batchstring", "--launch-ms", "100")
    assert found["rate_per_s"] == pytest.approx(10, rel=0.05)
