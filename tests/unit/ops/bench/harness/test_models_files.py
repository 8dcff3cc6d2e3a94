"""A models file that a benchmark writes is read as what it was written from."""

from pathlib import Path

from jobs.models import builtin_models
from jobs.models import models_file as models_file_registry
from ops.bench.harness.models_files import models_file, sample


def test_a_written_models_file_declares_the_same_models(tmp_path: Path) -> None:
    models = [
        sample("batchstring", target_ms=300, limits={"max_batch": 32}),
        sample("simple", name="sums"),
        sample("minilm", name="other", options={"max_tokens": 128, "device": 'a "quoted" one'}),
    ]
    path = tmp_path / "models.toml"
    path.write_text(models_file(*models))
    assert list(models_file_registry.load(path)) == models
    assert models[0].limits.max_batch == 32
    assert (
        models[0].limits.window_ms == builtin_models.SAMPLES.resolve("batchstring").limits.window_ms
    )
