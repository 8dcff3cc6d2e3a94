"""Rounds of a comparison, and the models files that a benchmark writes."""

from functools import partial
from pathlib import Path

from jobs.models import builtin_models
from jobs.models import models_file as models_file_registry
from ops.bench.harness.models_files import models_file, sample
from ops.bench.harness.scale import Scale


def test_all_sides_are_measured_in_each_round() -> None:
    order: list[tuple[str, int]] = []

    def measure(name: str, number: int) -> int:
        order.append((name, number))
        return len(order)

    sides = {name: partial(measure, name) for name in ("a", "b")}
    assert Scale(2, 1.0).in_turn(sides) == {"a": [1, 3], "b": [2, 4]}
    assert order == [("a", 0), ("b", 0), ("a", 1), ("b", 1)]


def test_a_written_models_file_declares_the_same_models(tmp_path: Path) -> None:
    models = [
        sample("batchstring", target_ms=300, limits={"max_batch": 32}),
        sample("simple", name="sums"),
        sample("minilm", name="other", options={"max_tokens": 128, "device": 'a "quoted" one'}),
    ]
    path = tmp_path / "models.toml"
    path.write_text(models_file(*models))
    assert list(models_file_registry.load(path)) == models
    assert models[0].limits.most_rows == 32
    assert (
        models[0].limits.window_ms == builtin_models.SAMPLES.resolve("batchstring").limits.window_ms
    )
