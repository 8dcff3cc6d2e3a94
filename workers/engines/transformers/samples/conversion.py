"""`python -m workers.engines.transformers.samples.conversion FILE FOLDER`: converts a Llama in GGUF
to a folder of float32 weights, as Hugging Face's libraries save it."""

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"

import gguf
import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file
from transformers import AutoConfig, AutoTokenizer

from jobs.models.engines import huggingface_folder

NAMES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_norm": "input_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "ffn_norm": "post_attention_layernorm",
}
_BLOCK = re.compile(r"(?:blk\.(\d+)\.)?(\w+)\.weight")


def convert(file: Path, folder: Path) -> None:
    """Writes weights, configuration, tokenizer and chat template."""
    source = {"gguf_file": file.name, "local_files_only": True}
    config: Any = AutoConfig.from_pretrained(file.parent, **source)
    tokenizer: Any = AutoTokenizer.from_pretrained(file.parent, **source)
    folder.mkdir()
    tokenizer.save_pretrained(folder)
    made = dict[str, NDArray[np.float32]]()
    for name, values in weights(file, config):
        made[name] = values
        print(name, flush=True)  # progress, for who waits
    config.tie_word_embeddings = "lm_head.weight" not in made
    config.architectures = ["LlamaForCausalLM"]
    config.dtype = "float32"
    config.save_pretrained(folder)
    save_file(made, folder / huggingface_folder.WEIGHTS, metadata={"format": "pt"})


def weights(file: Path, config: Any) -> Iterator[tuple[str, NDArray[np.float32]]]:
    """Yields the weights by their names in transformers."""
    for tensor in gguf.GGUFReader(file).tensors:
        if not (found := _BLOCK.fullmatch(tensor.name)) or found[2] not in NAMES:
            continue  # as the factors of the rotary embedding, which follow from the configuration
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        heads = {"attn_q": config.num_attention_heads, "attn_k": config.num_key_value_heads}
        if found[2] in heads:
            values = _halves(values, heads[found[2]])
        layer = f"model.layers.{found[1]}." if found[1] else ""
        yield f"{layer}{NAMES[found[2]]}.weight", np.ascontiguousarray(values)


def _halves(values: NDArray[np.float32], heads: int) -> NDArray[np.float32]:
    """Reorders rows: GGUF rotates pairs of neighbours, transformers the two halves of a head."""
    pairs = values.reshape(heads, -1, 2, values.shape[-1])
    return pairs.swapaxes(1, 2).reshape(values.shape)


if __name__ == "__main__":
    convert(Path(sys.argv[1]), Path(sys.argv[2]))
