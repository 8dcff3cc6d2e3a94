"""Folder of a Llama of random weights, of any size, for benches that need no sense."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

_FILES = {
    "sha256": "model.safetensors",
    "config_sha256": "config.json",
    "tokenizer_sha256": "tokenizer.json",
}
_END = 0  # token id
_TEMPLATE = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}assistant:"


@dataclass(frozen=True, slots=True)
class Size:
    """Configuration of a Llama."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    max_position_embeddings: int


ONE_B = Size(128_256, 2048, 8192, 16, 32, 8, 8192)  # as Llama 3.2 1B: 1.24 B parameters
TINY = Size(512, 48, 96, 2, 6, 2, 2048)


def save(folder: Path, size: Size, dtype: str) -> Mapping[str, Any]:
    """Saves weights of a type, and a tokenizer whose tokens are bytes; returns the options of the
    engine that declare them."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        **asdict(size), bos_token_id=None, eos_token_id=_END, tie_word_embeddings=True
    )
    torch.set_default_dtype(getattr(torch, dtype))
    try:
        LlamaForCausalLM(config).save_pretrained(folder, max_shard_size="100GB")
    finally:
        torch.set_default_dtype(torch.float32)
    _save_tokenizer(folder, size.vocab_size)
    digests = {option: _digest(folder / name) for option, name in _FILES.items()}
    return {"path": str(folder), "dtype": dtype, **digests}


def _save_tokenizer(folder: Path, vocabulary: int) -> None:
    """Saves a tokenizer in which each id has a text: first the bytes, then words of their own."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = ["<|end|>", *alphabet, *(f"Ġt{n}" for n in range(vocabulary))][:vocabulary]
    tokenizer = Tokenizer(models.BPE({word: n for n, word in enumerate(words)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<|end|>"])
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {"eos_token": "<|end|>", "chat_template": _TEMPLATE}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
