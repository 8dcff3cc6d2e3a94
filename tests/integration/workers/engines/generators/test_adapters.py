"""Adapters in the generation engine: several in one batch, each as its merged model alone."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jobs.models.adapters import WEIGHTS, Adapter
from tests.integration.workers.engines.generators.conftest import load_tiny
from tests.support.generation import adapters, generating
from tests.support.generation.adapters import declared
from workers.engines.generator import AdapterLoaded, NewSequence
from workers.engines.protocol import Permanent
from workers.engines.transformers.engine import TransformersGenerator

PROMPTS = ["The cat sat on the mat, and", "How many apples has Ada if she", "one two three four"]
MLP = (*adapters.ATTENTION, "gate_proj", "up_proj", "down_proj")


@pytest.fixture(scope="module")
def shapes(tiny_folder: Path) -> dict[str, tuple[int, int]]:
    return adapters.llama_shapes(tiny_folder)


@pytest.fixture(scope="module")
def adapting(tiny_folder: Path) -> Iterator[TransformersGenerator]:
    with closing(load_tiny(tiny_folder, adapter_slots=3)) as generator:
        yield generator


@pytest.fixture(scope="module")
def saved(tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Makes the folder of an adapter by its seed."""
    root = tmp_path_factory.mktemp("adapters")
    layers = adapters.llama_shapes(tiny_folder, MLP)

    def make(seed: int, names: Sequence[str] = adapters.ATTENTION, **fields: Any) -> Path:
        its = {name: size for name, size in layers.items() if name.rpartition(".")[2] in names}
        return adapters.save(root / f"a{seed}", its, seed=seed, **fields)

    return make


def load(generator: TransformersGenerator, slot: int, adapter: Adapter) -> AdapterLoaded:
    generator.load_adapter(slot, adapter)
    while not (ended := generator.step(0).adapters):
        pass
    return ended[0]


def with_adapter(
    generator: TransformersGenerator, text: str, adapter: Adapter | None
) -> NewSequence:
    salt = adapter.identity if adapter else ""
    return replace(generating.sequence(generator, text, salt=salt), adapter=adapter)


def tokens_alone(generator: TransformersGenerator) -> list[list[int]]:
    """Tokens of the prompts, each alone."""
    ones = [generating.sequence(generator, text) for text in PROMPTS]
    return [generating.run(generator, [one])[0].tokens for one in ones]


def tokens_of_merged(base: Path, adapter: Path, folder: Path) -> list[list[int]]:
    """Tokens of the prompts by the merged model, each alone."""
    with closing(load_tiny(adapters.merge_llama(base, adapter, folder))) as generator:
        return tokens_alone(generator)


def test_base_and_adapters_in_one_batch_equal_their_merged_models_alone(
    adapting: TransformersGenerator,
    tiny: TransformersGenerator,
    tiny_folder: Path,
    saved: Callable[..., Path],
    tmp_path: Path,
) -> None:
    folders = [
        saved(1),
        saved(2, rank=3, use_rslora=True),
        saved(3, rank=16, names=("q_proj", "down_proj", "gate_proj")),
    ]
    expected = [
        tokens_alone(tiny),
        *(tokens_of_merged(tiny_folder, one, tmp_path / one.name) for one in folders),
    ]
    assert len({tuple(map(tuple, its)) for its in expected}) == 4, "adapters that change nothing"
    chosen = [None, *(declared(folder) for folder in folders)]
    for slot, adapter in enumerate(chosen[1:]):
        assert adapter
        assert not load(adapting, slot, adapter).error
    for prefill in (64, 5):  # whole prompts, and prompts in pieces beside others that decode
        pairs = [(n, m) for m in range(len(PROMPTS)) for n in range(len(chosen))]
        for some in (pairs[:8], pairs[4:]):
            sequences = [with_adapter(adapting, PROMPTS[m], chosen[n]) for n, m in some]
            found = generating.run(adapting, sequences, prefill=prefill)
            assert [one.tokens for one in found] == [expected[n][m] for n, m in some]


def test_8_bit_weights_have_adapters_that_the_engine_counts(
    tiny_folder: Path, saved: Callable[..., Path]
) -> None:
    ones = [declared(saved(1)), declared(saved(2, rank=16, names=MLP))]
    with (
        closing(load_tiny(tiny_folder, quantization="int8")) as plain,
        closing(load_tiny(tiny_folder, quantization="int8", adapters=ones)) as quantized,
    ):
        assert quantized.memory_mb() > plain.memory_mb()
        assert not load(quantized, 0, ones[0]).error
        for prefill in (64, 5):
            asked = [with_adapter(quantized, PROMPTS[0], one) for one in (None, ones[0])]
            base, own = generating.run(quantized, asked, prefill=prefill)
            assert base.tokens != own.tokens


def test_a_slot_that_is_filled_again_has_nothing_of_the_adapter_before(
    adapting: TransformersGenerator, tiny_folder: Path, saved: Callable[..., Path], tmp_path: Path
) -> None:
    first, second = saved(4, rank=16, names=MLP), saved(5, rank=4)
    expected = tokens_of_merged(tiny_folder, second, tmp_path / "merged")
    load(adapting, 0, declared(first))
    generating.run(adapting, [with_adapter(adapting, PROMPTS[0], declared(first))])
    load(adapting, 0, declared(second))
    sequences = [with_adapter(adapting, text, declared(second)) for text in PROMPTS]
    assert [one.tokens for one in generating.run(adapting, sequences)] == expected
    [gone] = generating.run(adapting, [with_adapter(adapting, PROMPTS[0], declared(first))])
    assert "not loaded" in str(gone.error)


def test_prefixes_are_not_shared_between_adapters_which_a_restart_keeps(
    adapting: TransformersGenerator, saved: Callable[..., Path]
) -> None:
    adapter, text = declared(saved(1)), "five six seven eight, which no other test begins with"
    load(adapting, 1, adapter)

    def generated(adapter: Adapter | None) -> generating.Generated:
        [found] = generating.run(adapting, [with_adapter(adapting, text, adapter)])
        return found

    first, own, again = (generated(one) for one in (None, adapter, adapter))
    assert (first.cached, own.cached) == (0, 0)
    assert again.cached > 0
    assert again.tokens == own.tokens
    adapting.restart()
    assert generated(adapter).tokens == own.tokens


def broken(what: str, folder: Path, shapes: dict[str, tuple[int, int]]) -> Adapter:
    """Adapter with one fault."""
    import torch
    from safetensors.torch import load_file, save_file

    adapters.save(folder, shapes, seed=9, **({"use_dora": True} if what == "dora" else {}))
    adapter = declared(folder)
    if what == "missing":
        return replace(adapter, path=str(folder / "nowhere"))
    if what == "checksum":
        return replace(adapter, sha256="0" * 64)
    tensors = load_file(folder / WEIGHTS)
    name = next(iter(tensors))
    if what == "shape":
        tensors[name] = torch.zeros(2, 2)
    elif what == "base":
        tensors = {key.replace("layers.0", "layers.7"): one for key, one in tensors.items()}
    elif what == "nan":
        tensors[name][0, 0] = float("nan")
    elif what == "half":
        del tensors[name]
    elif what == "pickle":
        (folder / WEIGHTS).write_bytes(b"\x80\x04K\x01.")
        return declared(folder)
    save_file(tensors, folder / WEIGHTS)
    return declared(folder)


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("missing", "can't be read"),
        ("checksum", "is not the file that was declared"),
        ("shape", "where its base takes"),
        ("base", "has no linear layer"),
        ("nan", "not finite"),
        ("half", "has no lora_"),
        ("pickle", "not safetensors"),
        ("dora", "use_dora is not supported"),
    ],
)
def test_a_broken_adapter_is_refused_and_others_go_on(
    adapting: TransformersGenerator,
    shapes: dict[str, tuple[int, int]],
    tmp_path: Path,
    what: str,
    message: str,
) -> None:
    adapter = broken(what, tmp_path / "broken", shapes)
    running = with_adapter(adapting, PROMPTS[0], None)
    adapting.add(running)
    adapting.load_adapter(0, adapter)
    found, loads = {running.id: generating.Generated()}, list[AdapterLoaded]()
    while not (found[running.id].finish and loads):
        step = adapting.step(64)
        loads += step.adapters
        for emitted in step.emitted:
            found[emitted.id].add(emitted)
    [ended] = loads
    assert isinstance(ended.error, Permanent)
    assert message in str(ended.error)
    [refused] = generating.run(adapting, [with_adapter(adapting, PROMPTS[1], adapter)])
    assert "not loaded" in str(refused.error)
