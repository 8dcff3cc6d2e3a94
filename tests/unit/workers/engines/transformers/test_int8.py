"""Weights of 8 bits: their products, their sizes, and what they leave of a model."""

from pathlib import Path

import pytest
import torch

from jobs.models import memory_plan, network_shape
from tests.support.generation import adapters, tiny_llama
from workers.engines.adapters import lora
from workers.engines.adapters.stacked import StackedAdapters
from workers.engines.transformers.child import int8, network

pytestmark = pytest.mark.heavy


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_llama.save(tmp_path_factory.mktemp("tiny-llama"))


@pytest.mark.parametrize("columns", [8, 40, 64])  # of 8 and 40 torch's kernel reads too far
@pytest.mark.parametrize("rows", [1, 16, 32, 33, 200])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_product_is_close_to_that_of_the_full_weights(
    rows: int, dtype: torch.dtype, columns: int
) -> None:
    torch.manual_seed(rows)
    weight, inputs = torch.randn(96, columns), torch.randn(2, rows // 2 or 1, columns).to(dtype)
    bias = torch.randn(96)
    linear = int8.Int8Linear(int8.Int8Rows(weight), bias.to(dtype))
    expected = torch.nn.functional.linear(inputs.float(), weight, bias)
    found = linear(inputs)
    assert (found.dtype, found.shape) == (dtype, expected.shape)
    assert (found.float() - expected).abs().max() < 0.02 * expected.abs().max()


def test_a_row_does_not_depend_on_the_rows_beside_it_and_one_of_zeros_stays_one() -> None:
    torch.manual_seed(0)
    linear = int8.Int8Linear(int8.Int8Rows(torch.randn(96, 64)), None)
    inputs = torch.randn(16, 64)
    together = linear(inputs)
    for n in range(16):
        assert torch.equal(linear(inputs[n : n + 1])[0], together[n])
    zeros = int8.Int8Linear(int8.Int8Rows(torch.zeros(4, 8)), None)
    assert torch.equal(zeros(torch.ones(1, 8)), torch.zeros(1, 4))


@torch.inference_mode()
def test_a_model_keeps_its_answers_and_takes_what_was_planned(folder: Path) -> None:
    tokens = torch.tensor([[(7 * n + 5) % tiny_llama.VOCABULARY for n in range(24)]])
    full = network.load_model(folder, "float32", torch.device("cpu"))
    small = network.load_model(folder, "float32", torch.device("cpu"), "int8")
    expected = full(tokens, use_cache=False).logits[0]
    found = small(tokens, use_cache=False).logits[0]
    assert (found - expected).abs().max() < 0.1 * expected.abs().max()
    same = (found.argmax(-1) == expected.argmax(-1)).float().mean()
    assert same > 0.8
    shape = network_shape.read_shape(folder)
    planned = memory_plan.weight_bytes(shape, 4, "int8") / memory_plan.MIB
    full_mb, small_mb = network.weights_mb(full), network.weights_mb(small)
    assert small_mb == pytest.approx(planned, rel=0.01)
    assert full_mb == pytest.approx(shape.parameters * 4 / memory_plan.MIB, rel=0.01)
    assert small_mb < 0.35 * full_mb


@torch.inference_mode()
def test_an_adapter_changes_quantized_weights_as_it_does_full_ones(
    folder: Path, tmp_path: Path
) -> None:
    tokens = torch.tensor([[(7 * n + 5) % tiny_llama.VOCABULARY for n in range(24)]])
    saved = adapters.save(tmp_path / "legal", adapters.llama_shapes(folder), seed=1)
    merged = adapters.merge_llama(folder, saved, tmp_path / "merged")
    full = network.load_model(merged, "float32", torch.device("cpu"))
    small = network.load_model(folder, "float32", torch.device("cpu"), "int8")
    plain = small(tokens, use_cache=False).logits[0]
    stacked = StackedAdapters.of_model(small, 2)
    declared = adapters.declared(saved)
    stacked.put(1, lora.load(declared, stacked.shapes, stacked.dtype, stacked.device))
    stacked.plan([(range(24), 1)])
    found = small(tokens, use_cache=False).logits[0]
    expected = full(tokens, use_cache=False).logits[0]
    close = 0.1 * expected.abs().max()
    assert (found - expected).abs().max() < close < (plain - expected).abs().max()
    stacked.plan([])
    assert torch.equal(small(tokens, use_cache=False).logits[0], plain)
