"""A function that quotes its input when it fails, as many do."""

from collections.abc import Sequence


def quoting(texts: Sequence[str]) -> list[str]:
    raise ValueError(f"no such word: {texts[0]!r}")
