"""`millrace bench generate-gpu` is ready for a card: where there is none it says so, and the trial
on the CPU goes through everything."""

import json
import subprocess
import sys

import pytest

pytest.importorskip("matplotlib")  # of the extra `bench`
pytest.importorskip("transformers")


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "ops", "bench", "generate-gpu", *arguments],
        capture_output=True,
        text=True,
        check=False,
    )


def test_without_a_card_it_says_what_can_be_done() -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("there is a card")
    done = bench()
    assert done.returncode == 1
    assert "no CUDA device" in done.stderr
    assert "--device cpu" in done.stderr


def test_the_trial_on_the_cpu_has_every_figure() -> None:
    done = bench("--device", "cpu")
    assert done.returncode == 0, done.stderr[-3000:]
    line = json.loads(done.stdout.splitlines()[-1])
    assert {row["figure"] for row in line["asked"]} <= line["figures"].keys()
    figures = line["figures"]
    assert figures["job_tokens_per_s"] > 0
    assert figures["engine_ttft_p95_ms"] > 0
    assert figures["stream_ttft_p95_ms"] > 0
    assert figures["kv_blocks"] > 0
    assert figures["batch_gain"] > 1
    assert 0 <= figures["kv_usage_peak"] <= 1
