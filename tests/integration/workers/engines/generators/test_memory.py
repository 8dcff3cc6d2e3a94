"""Engine `transformers`: memory that is not there, and weights of 8 bits."""

from contextlib import closing
from pathlib import Path

import psutil
import pytest

from tests.integration.workers.engines.generators.conftest import load_tiny
from tests.support.generation import tiny_llama
from tests.support.generation.generating import new_sequence, prepared, resumed, run


def test_a_cache_that_does_not_fit_is_refused_before_anything_is_loaded(
    tiny_folder: Path,
) -> None:
    children = set(psutil.Process().children())
    with pytest.raises(ValueError, match=r"KV cache [\d,]+ MiB.*are free: lower options\.cache_mb"):
        load_tiny(tiny_folder, blocks=1 << 30)
    assert set(psutil.Process().children()) <= children


def test_quantized_weights_take_a_third_and_give_text_that_goes_on(tiny_folder: Path) -> None:
    with (
        closing(load_tiny(tiny_folder, blocks=64)) as full,
        closing(load_tiny(tiny_folder, blocks=64, quantization="int8")) as small,
    ):
        cache_mb = 64 * 4 * 256 / 2**20
        weights = full.memory_mb() - cache_mb
        assert small.memory_mb() - cache_mb < 0.4 * weights
        prompts = [prepared(small, text) for text in tiny_llama.TEXTS[:4]]
        together = run(small, [new_sequence(prompt, seed=3) for prompt in prompts])
        assert all(one.finish and one.tokens for one in together)
        one = new_sequence(prompts[0], seed=3)
        [rest] = run(small, [resumed(one, together[0].tokens[:5])])
        assert together[0].tokens[:5] + rest.tokens == together[0].tokens
