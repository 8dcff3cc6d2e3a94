"""Memory plans, against what folders hold and tensors take."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jobs.models import memory_plan, network_shape
from jobs.models.adapters import CONFIG, WEIGHTS, Adapter
from jobs.models.engines.generating_engines import TransformersOptions
from jobs.models.memory_plan import MIB, MemoryPlan
from jobs.models.network_shape import NetworkShape

#: Llama 3.1 8B, whose sizes are known: 8.03 billion parameters, 128 KiB of KV a token in 16 bit.
_LAYER = {
    "self_attn.q_proj": (4096, 4096),
    "self_attn.k_proj": (1024, 4096),
    "self_attn.v_proj": (1024, 4096),
    "self_attn.o_proj": (4096, 4096),
    "mlp.gate_proj": (14336, 4096),
    "mlp.up_proj": (14336, 4096),
    "mlp.down_proj": (4096, 14336),
    "input_layernorm": (4096,),
    "post_attention_layernorm": (4096,),
}
EIGHT_B = NetworkShape(
    layers=32, kv_heads=8, head_size=128, hidden=4096, intermediate=14336, vocabulary=128_256,
    context_tokens=131_072,
    weights={
        f"model.layers.{n}.{name}.weight": shape
        for n in range(32) for name, shape in _LAYER.items()
    } | {
        "model.embed_tokens.weight": (128_256, 4096),
        "lm_head.weight": (128_256, 4096),
        "model.norm.weight": (4096,),
    },
)  # fmt: skip


def plan(free_gb: float = 0, *, adapters: Sequence[Adapter] = (), **options: Any) -> MemoryPlan:
    given = TransformersOptions(builtin="smollm2", **{"dtype": "bfloat16", **options})
    planned = memory_plan.with_defaults(given, on_cpu=False, adapters=adapters)
    return memory_plan.make_plan("llama@1", EIGHT_B, planned, int(free_gb * 2**30))


def test_weights_and_cache_of_a_known_model_in_sixteen_and_eight_bits() -> None:
    made = plan(80, sequences=64, context_tokens=8192)
    assert EIGHT_B.parameters == 8_030_261_248
    assert made.weights == 2 * EIGHT_B.parameters
    assert made.token_bytes == 128 * 1024
    assert replace(EIGHT_B, kv_heads=32).token_bytes(2) == 4 * EIGHT_B.token_bytes(2)
    assert made.problem() == ""
    assert made.sequences_of(8192) == 55  # of 1 GiB each: 85 % of what the weights leave
    assert plan(80, sequences=16, context_tokens=8192).sequences_of(8192) == 16
    full, quantized = plan(80), plan(80, quantization="int8")
    embedding = 128_256 * 4096
    assert quantized.weights == pytest.approx(full.weights / 2 + embedding, rel=0.001)
    assert full.weights_int8 == quantized.weights
    assert quantized.loading == full.weights  # before they are quantized


def test_the_lines_tell_what_fits_and_a_problem_what_to_change() -> None:
    made = plan(24, cache_mb=4096, sequences=4, context_tokens=8192)
    text = "\n".join(made.lines())
    assert "32768 tokens of 131072 bytes" in text
    assert "4 of 512, 4 of 2048, 4 of 8192" in text
    assert f"{made.left // made.adapter_bytes} more adapters of rank 16" in text
    assert made.as_json()["fits"] is True
    # 16 × (in + out) of seven layers, 32 times, in 16 bit: 80 MiB, as PEFT's files have
    assert made.adapter_bytes == pytest.approx(80 * MIB, rel=0.01)
    problem = plan(16, cache_mb=8192, sequences=8, context_tokens=8192).problem()
    assert "weights 15,317 MiB" in problem
    assert "KV cache 8,192 MiB" in problem
    assert "16,384 MiB are free" in problem
    assert 'quantization = "int8"' in problem
    assert plan(0, cache_mb=8192).problem() == ""  # not known


def adapter(folder: Path, rank: int, *names: str) -> Adapter:
    """An adapter of the first layer's matrices with these names, of 8 B's sizes."""
    import numpy as np
    from safetensors.numpy import save_file

    folder.mkdir()
    (folder / CONFIG).write_text(f'{{"r": {rank}}}')
    matrices = {}
    for name in names:
        rows, columns = _LAYER[name]
        key = f"base_model.model.model.layers.0.{name}.lora"
        matrices[f"{key}_A.weight"] = np.zeros((rank, columns), np.float16)
        matrices[f"{key}_B.weight"] = np.zeros((rows, rank), np.float16)
    save_file(matrices, folder / WEIGHTS)
    return Adapter(folder.name, str(folder), "0" * 64)


def test_slots_of_adapters_have_the_largest_rank_for_the_layers_of_any(tmp_path: Path) -> None:
    small = adapter(tmp_path / "small", 4, "self_attn.q_proj")
    large = adapter(tmp_path / "large", 32, "self_attn.k_proj", "mlp.down_proj")
    made = plan(40, adapters=[small, large], adapter_slots=3, context_tokens=1024)
    numbers = 32 * (4096 + 4096 + 1024 + 4096 + 4096 + 14336)
    assert made.adapters == 3 * 2 * numbers
    assert made.needed == plan(40, context_tokens=1024).needed + made.adapters
    assert "3 slots" in "\n".join(made.lines())
    assert made.as_json()["adapters_mb"] == round(made.adapters / MIB, 1)


def test_adapters_leave_less_of_a_gpu_to_the_cache_and_one_in_s3_has_a_common_rank(
    tmp_path: Path,
) -> None:
    one = adapter(tmp_path / "one", 256, *[name for name in _LAYER if "proj" in name])
    with_it, without = plan(24, adapters=[one]), plan(24)
    cache = memory_plan.CACHE_SHARE * with_it.adapters
    assert without.cache - with_it.cache == pytest.approx(cache, abs=2 * MIB * 64)
    remote = Adapter("remote", "s3://models/remote", "0" * 64)
    made = plan(80, adapters=[remote, adapter(tmp_path / "two", 4, "self_attn.q_proj")])
    assert made.adapters == 4 * made.adapter_bytes


def test_the_shape_of_a_folder_is_that_of_its_tensors(tmp_path: Path) -> None:
    import numpy as np
    from safetensors.numpy import save_file

    (tmp_path / "config.json").write_text(
        '{"num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2, '
        '"hidden_size": 8, "vocab_size": 5, "max_position_embeddings": 64}'
    )
    weights = {
        "model.embed_tokens.weight": np.zeros((5, 8), np.float32),
        "model.layers.0.mlp.up_proj.weight": np.zeros((16, 8), np.float32),
        "model.norm.weight": np.zeros(8, np.float32),
    }
    save_file(weights, tmp_path / "model.safetensors")
    shape = network_shape.read_shape(tmp_path)
    assert (shape.parameters, shape.embedding, shape.linear) == (40 + 128 + 8, 40, 128)
    assert shape.shares_embedding
    assert (shape.head_size, shape.kv_heads, shape.token_bytes(4)) == (2, 2, 2 * 2 * 2 * 4)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ValueError, match="doesn't tell the model's shape"):
        network_shape.read_shape(tmp_path)
