"""Texts of the parts, of a given number of MiniLM's tokens."""

from tokenizers import Tokenizer

from jobs.models.inputs.input_size import minilm_tokenizer
from ops.bench.data import texts as data

_STRIDE = 787  # a prime: neighbours come from all over


def of_tokens(tokens: int, most: int) -> list[str]:
    """Returns up to so many texts, the beginnings of real ones, each of so many tokens with its two
    special ones; those that are shorter are left out."""
    tokenizer = Tokenizer.from_file(str(minilm_tokenizer()))
    tokenizer.no_truncation()
    tokenizer.no_padding()  # a padded text would seem long enough, and be cut to nothing
    encoded = zip(whole := data.mixed(), tokenizer.encode_batch(whole), strict=True)
    cut = [
        text[: encoding.offsets[tokens - 2][1]]
        for text, encoding in encoded
        if len(encoding.ids) > tokens
    ]
    return _mixed_up(cut, most)


def of_any_length(most: int) -> list[str]:
    """Returns up to so many short and long texts, in a fixed mixed order."""
    return _mixed_up(data.mixed(), most)


def _mixed_up(texts: list[str], most: int) -> list[str]:
    return [texts[n * _STRIDE % len(texts)] for n in range(min(most, len(texts)))]
