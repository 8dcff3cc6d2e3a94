"""`millrace simulate --generation`: traces with token counts."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from ops.cli.main import main
from ops.simulation import generation_trace
from ops.simulation.traces import TraceError

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
    ran = CliRunner().invoke(main, ["simulate", "--generation", str(trace)])
    assert ran.exit_code == 0, ran.output
    assert "first token" in ran.output
    assert "preemptions" in ran.output
    ran = CliRunner().invoke(main, ["simulate", f"--generation={trace}", "--job", "--json"])
    figures = json.loads(ran.output)
    assert figures["calls_tokens"] == 153
    assert figures["items_tokens"] > 0


def test_without_it_the_command_is_the_one_of_launches() -> None:
    ran = CliRunner().invoke(main, ["simulate", "--help"])
    assert "--replicas" in ran.output
    assert "--generation TRACE" in ran.output
