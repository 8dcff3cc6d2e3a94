"""Adapters in the encoder engine: several in one launch, each as its merged model alone."""

from pathlib import Path

import numpy as np
import pytest

from jobs.models.adapters import Adapter
from tests.support.generation import adapters
from tests.support.generation.adapters import declared
from workers.engines.encoder import RandomEncoder, _shapes, _weights
from workers.engines.encoders.embedding import Embedder
from workers.engines.protocol import Adapted, Permanent, Prepared

SIZES = {"hidden": 64, "layers": 2, "heads": 4, "intermediate": 128}
TEXTS = ["a cat", "the cat sat on the mat and slept", "x", "how do I parse a JSON document?"]
LAYERS = ("attention.self.query", "attention.self.value", "attention.output.dense", "output.dense")


def shapes() -> dict[str, tuple[int, int]]:
    sizes = dict(_shapes(64, 2, 128, 30522))
    return {
        key.removesuffix(".weight"): (shape[1], shape[0])
        for key, shape in sizes.items()
        if key.endswith(tuple(f"{name}.weight" for name in LAYERS))
    }


def alone(folder: Path | None, layout: str) -> np.ndarray:
    """Vectors by the merged model."""
    import torch

    sizes = dict(_shapes(64, 2, 128, 30522))

    def load(place: torch.device) -> dict[str, torch.Tensor]:
        weights = dict(_weights(sizes, 0, place))
        return adapters.merged(weights, folder) if folder else weights

    engine = Embedder(load, 4, threads=1, device="cpu", layout=layout)
    return engine.run([one.data for one in engine.prepare(TEXTS, {})], {})  # type: ignore[union-attr]


@pytest.mark.parametrize("layout", ["packed", "padded"])
def test_items_of_different_adapters_share_a_launch(tmp_path: Path, layout: str) -> None:
    folders = [adapters.save(tmp_path / f"a{n}", shapes(), seed=n, rank=4 * n) for n in (1, 2, 3)]
    chosen: list[Path | None] = [None, *folders]
    expected = {folder: alone(folder, layout) for folder in chosen}
    engine = RandomEncoder(**SIZES, threads=1, device="cpu", layout=layout)
    batch, wanted = [], []
    for n, text in enumerate(TEXTS * 2):
        folder = chosen[(n + n // 4) % 4]
        [prepared] = engine.prepare([text], {})
        assert isinstance(prepared, Prepared)
        loaded = engine.load_adapter(declared(folder)) if folder else None
        batch.append(Adapted(prepared.data, loaded) if loaded else prepared.data)
        wanted.append(expected[folder][n % 4])
    found = engine.run(batch, {})
    assert np.abs(found - np.array(wanted)).max() < 1e-5
    assert np.abs(expected[None] - expected[folders[0]]).max() > 1e-2, "it changes nothing"


def test_slots_hold_the_adapters_used_last_and_pinned_ones(tmp_path: Path) -> None:
    made = [declared(adapters.save(tmp_path / f"a{n}", shapes(), seed=n)) for n in range(5)]
    pinned = Adapter(**{f: getattr(made[0], f) for f in ("name", "path", "sha256")}, pinned=True)
    engine = RandomEncoder(**SIZES, threads=1, device="cpu", adapter_slots=2)
    for adapter in (pinned, *made[1:]):
        engine.load_adapter(adapter)
    assert engine.loaded_adapter(pinned)
    assert engine.loaded_adapter(made[4])
    assert not any(engine.loaded_adapter(one) for one in made[1:4])
    assert engine.held_adapters.take_evictions() == 3


def test_a_broken_adapter_leaves_its_slot(tmp_path: Path) -> None:
    good = declared(adapters.save(tmp_path / "good", shapes(), seed=1))
    wrong = {f"{name}x": size for name, size in shapes().items()}
    bad = declared(adapters.save(tmp_path / "bad", wrong, seed=2))
    engine = RandomEncoder(**SIZES, threads=1, device="cpu", adapter_slots=1)
    with pytest.raises(Permanent, match="no linear layer"):
        engine.load_adapter(bad)
    assert engine.load_adapter(good)
