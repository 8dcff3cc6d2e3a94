"""Files of histories: what is written is read again, and what is wrong is said."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from ops.cli.main import main
from ops.simulation import history
from ops.simulation.history import Row
from ops.simulation.traces import TraceError
from tests.support.cases import each
from tests.support.command_line import json_of

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
