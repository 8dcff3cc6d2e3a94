"""`millrace simulate --generation`: traces with token counts."""

from pathlib import Path

import pytest

from ops.simulation import generation_trace
from ops.simulation.traces import TraceError
from tests.support.command_line import json_of, run_millrace

TRACE = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:15:50.9951690,396,109
2023-11-16 18:15:46.6805900,374,44
"""


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "trace.csv"
    path.write_text(TRACE)
    return path


def test_arrivals_are_read_in_order_with_their_tokens(trace: Path) -> None:
    first, second = generation_trace.read(trace)
    assert (first.at_s, first.input, first.output) == (0.0, 374, 44)
    assert second.at_s == pytest.approx(4.3146, abs=0.001)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("t_s,in_tokens\n1,2\n", "GeneratedTokens"),
        ("t_s,in_tokens,out_tokens\n", "no arrivals"),
        ("t_s,in_tokens,out_tokens\n1,x,2\n", "line 2"),
    ],
)
def test_a_trace_that_isnt_one_is_refused_with_its_line(
    tmp_path: Path, text: str, said: str
) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(text)
    with pytest.raises(TraceError, match=said):
        generation_trace.read(path)


def test_the_command_prints_times_tokens_and_preemptions(trace: Path) -> None:
    shown = run_millrace("simulate", "--generation", str(trace)).output
    assert "first token" in shown
    assert "preemptions" in shown
    figures = json_of("simulate", f"--generation={trace}", "--job")
    assert figures["calls_tokens"] == 153
    assert figures["items_tokens"] > 0
    shown = run_millrace("simulate", "--help").output  # the one of launches
    assert "--replicas" in shown
    assert "--generation TRACE" in shown
