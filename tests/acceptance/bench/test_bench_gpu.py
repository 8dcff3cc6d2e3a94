"""`millrace bench gpu` is ready for a card: where there is none it says so, and the trial on the
CPU goes through everything."""

import json
import subprocess
import sys

import pytest

pytest.importorskip("matplotlib")  # of the extra `bench`


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "ops", "bench", "gpu", *arguments],
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
    done = bench("--device", "cpu", "--quick")
    assert done.returncode == 0, done.stderr[-3000:]
    line = json.loads(done.stdout.splitlines()[-1])
    assert {row["figure"] for row in line["asked"]} == {
        "job_vs_bare_minilm",
        "job_vs_bare_encoder",
        "device_busy_share",
    }
    figures = line["figures"]
    for name in ("minilm", "encoder"):
        assert figures[f"job_vs_bare_{name}"] > 0.05
        assert 0 < figures[f"{name}_busy_share"] <= 1.01
        assert figures[f"{name}_whole_items_per_s"] <= figures[f"{name}_job_items_per_s"]
        assert figures[f"{name}_call_p95_ms"] > 0
        assert figures[f"{name}_call_p95_beside_job_ms"] > 0
