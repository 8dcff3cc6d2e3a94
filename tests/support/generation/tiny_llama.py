"""Causal language model of random weights, as small as one can be, saved as a folder."""

import json
from pathlib import Path
from typing import Any

from tests.support.models import custom_models
from tests.support.models.entries import model

VOCABULARY = 320
END = 1  # token id
CONTEXT = 256
TEXTS = [
    "The cat sat on the mat, and the dog slept.",
    "Grüße aus Köln 猫",
    "How many apples has Ada if she buys seven and eats three?",
    "a",
    "one two three four five six seven eight nine ten " * 4,
    "word " * 17,
]
NO_TOOLS = "{% if m['role'] == 'tool' %}{{ raise_exception('no tools') }}{% endif %}"
TEMPLATE = (
    "{% for m in messages %}"
    + NO_TOOLS
    + "<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if tools %}{{ tools | tojson }}\n{% endif %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def save(folder: Path, *, seed: int = 0, with_tools: bool = False, **config: Any) -> Path:
    """Saves model, tokenizer and chat template; returns the folder.

    with_tools: the template takes messages of tools."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(seed)
    sizes = {
        "vocab_size": VOCABULARY,
        "hidden_size": 48,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 6,
        "num_key_value_heads": 2,
        "max_position_embeddings": CONTEXT,
        "eos_token_id": END,
        "bos_token_id": None,
        "initializer_range": 0.3,  # logits far enough apart
        "tie_word_embeddings": True,
    }
    LlamaForCausalLM(LlamaConfig(**sizes | config)).save_pretrained(folder)
    save_tokenizer(folder, TEMPLATE.replace(NO_TOOLS, "") if with_tools else TEMPLATE)
    return folder


def options(folder: Path) -> dict[str, Any]:
    return {"path": str(folder), "threads": 1, "device": "cpu"} | custom_models.checksums(folder)


def entry(folder: Path, name: str = "tiny", **given: Any) -> str:
    """Returns the entry of a models file for such a folder; given: further fields."""
    given = {"target_ttft_ms": 600_000, "block_tokens": 16, **given}
    return model(name, "transformers", **options(folder), **given)


def save_tokenizer(folder: Path, template: str = TEMPLATE) -> None:
    """Saves a tokenizer of bytes with few merges, and the chat template."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=["<|im_start|>", "<|im_end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(TEXTS * 3, trainer)
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {"eos_token": "<|im_end|>", "chat_template": template}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
