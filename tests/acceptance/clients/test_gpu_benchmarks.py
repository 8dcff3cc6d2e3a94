"""The benchmarks for a GPU are ready for one: where there is none they say so, and their trial on
the CPU goes through everything."""

import json
import subprocess
import sys
from typing import Any

import pytest

pytestmark = pytest.mark.nightly
pytest.importorskip("matplotlib")  # of the extra `bench`


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ops", "bench", *arguments]
    return subprocess.run(command, capture_output=True, text=True)


def report(*arguments: str) -> dict[str, Any]:
    """Runs a benchmark to its end; returns the line that it prints last."""
    done = bench(*arguments)
    assert done.returncode == 0, done.stderr[-3000:]
    line: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return line


@pytest.mark.parametrize("name", ["gpu", "generate-gpu"])
def test_without_a_card_it_says_what_can_be_done(name: str) -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("there is a card")
    done = bench(name)
    assert done.returncode == 1
    assert "no CUDA device" in done.stderr
    assert "--device cpu" in done.stderr


def test_the_trial_of_encoders_on_the_cpu_has_every_figure_and_a_line_a_part() -> None:
    done = bench("gpu", "--device", "cpu", "--quick")
    assert done.returncode == 0, done.stderr[-3000:]
    *parts, line = map(json.loads, done.stdout.splitlines())
    assert [part["part"] for part in parts] == ["minilm", "large_encoder", "calls"]
    figures = line["figures"]
    assert figures == {name: n for part in parts for name, n in part["figures"].items()}
    unknown = {row["figure"] for row in line["asked"] if row["holds"] is None}
    assert unknown == {"encoder_peak_share"}
    assert {row["figure"] for row in line["asked"]} - unknown <= figures.keys()
    for prefix in ("short_", "long_", "encoder_"):
        assert figures[f"{prefix}job_vs_bare"] > 0.05
        assert 0 < figures[f"{prefix}busy_share"] <= 1.01
        assert figures[f"{prefix}whole_items_per_s"] <= figures[f"{prefix}job_items_per_s"]
    assert figures["short_library_items_per_s"] > 0
    assert figures["encoder_tflops"] > 0
    assert 0 < figures["call_p50_ms"] <= figures["call_p95_ms"]
    assert figures["call_p95_beside_job_ms"] > 0
    assert figures["items_beside_calls"] > 0


def test_the_trial_of_generation_on_the_cpu_has_every_figure() -> None:
    pytest.importorskip("transformers")
    line = report("generate-gpu", "--device", "cpu")
    figures = line["figures"]
    assert {row["figure"] for row in line["asked"]} <= figures.keys()
    for name in ("job_tokens_per_s", "engine_ttft_p95_ms", "stream_ttft_p95_ms", "kv_blocks"):
        assert figures[name] > 0, name
    assert figures["batch_gain"] > 1
    assert 0 <= figures["kv_usage_peak"] <= 1
