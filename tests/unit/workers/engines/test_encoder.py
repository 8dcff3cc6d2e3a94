"""The encoder of any size, with random weights."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer

from jobs.models.inputs.input_size import WORDS, minilm_folder
from tests.support.cases import each
from workers.engines.common import device
from workers.engines.encoder import RandomEncoder

pytestmark = pytest.mark.heavy

TINY = {"hidden": 32, "layers": 2, "heads": 4, "intermediate": 64, "threads": 1}


def embed(text: str, **options: Any) -> Any:
    engine = RandomEncoder(device="cpu", **{**TINY, **options})
    [entry] = engine.prepare([text], {})
    return engine.run([entry.data], {})[0]


def test_a_seed_gives_the_same_model_and_another_a_different_one() -> None:
    assert np.array_equal(embed("a cat"), embed("a cat"))
    assert not np.allclose(embed("a cat"), embed("a cat", seed=1), atol=1e-2)


def test_its_vectors_are_as_long_as_it_is_wide_and_its_memory_grows_with_its_shape() -> None:
    assert embed("a cat", hidden=48).shape == (48,)
    small = RandomEncoder(device="cpu", **TINY).memory_mb()
    for changed, case in each(["hidden", "layers", "intermediate"]):
        with case:
            larger = RandomEncoder(device="cpu", **{**TINY, changed: 2 * TINY[changed]})
            assert larger.memory_mb() > small


def test_the_tokenizer_has_as_many_words_as_it_takes() -> None:
    tokenizer = Tokenizer.from_file(str(minilm_folder() / "tokenizer.json"))
    assert tokenizer.get_vocab_size() == WORDS


@pytest.mark.parametrize(
    ("options", "named"),
    [({"hidden": 30}, "hidden"), ({"vocabulary": 100}, "vocabulary"), ({"max_tokens": 2}, "max_")],
)
def test_a_shape_that_cant_be_is_refused(options: dict[str, int], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        RandomEncoder(device="cpu", **{**TINY, **options})


def test_a_closed_one_gives_its_memory_back() -> None:
    def resident_mb() -> float:
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 2**20

    device.choose("cpu").release()  # what other tests left would be used first
    before = resident_mb()
    engine = RandomEncoder(device="cpu", hidden=256, layers=6, heads=4, intermediate=4096)
    held = resident_mb() - before
    assert held > 0.8 * engine.memory_mb()
    engine.close()
    assert resident_mb() - before < 0.2 * held
