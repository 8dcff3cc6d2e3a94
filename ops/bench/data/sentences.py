"""Made English sentences of a number of words."""

import tomllib
from collections import defaultdict
from pathlib import Path
from random import Random

_WORDS: dict[str, list[str]] = {
    kind: [phrase.strip() for phrase in phrases.split(",")]
    for kind, phrases in tomllib.loads(Path(__file__).with_name("words.toml").read_text()).items()
}
_PHRASES = defaultdict[int, list[str]](list)  #: by their words: one to four
for _phrase in _WORDS["phrases"]:
    _PHRASES[len(_phrase.split())].append(_phrase)
_JOINTS = (".", ".", ".", ", and", ", but", ", while", ", because", "; still ,", ", although")


def word(kind: str, draw: Random) -> str:
    """Draws a word or phrase. kind: a key of words.toml."""
    return draw.choice(_WORDS[kind])


def lengthened(text: str, words: int, draw: Random) -> str:
    """Adds phrases to a sentence until it has so many words."""
    missing = words - len(text.split())
    while missing > 0:
        size = draw.randint(1, min(missing, len(_PHRASES)))
        new = [phrase for phrase in _PHRASES[size] if phrase not in text]
        text = f"{text} {draw.choice(new or _PHRASES[size])}"
        missing -= size
    return text


def split(words: int, mean: int) -> list[int]:
    """Divides a text of so many words into sentences of about the mean."""
    count = max(1, round(words / mean))
    return [words // count + (n < words % count) for n in range(count)]


def caption(words: int, draw: Random) -> str:
    """Describes somebody doing something, in exactly so many words; at least two."""
    if words < 5:
        action = " ".join(word("actions", draw).split()[: words - 1])
        return f"{lengthened(action, words, draw)}."
    who = word("people", draw)
    if words > 5 and draw.random() < 0.5:
        who = f"{word('adjectives', draw)} {who}"
    start = f"{draw.choice(('The', 'One', 'Some'))} {who} is {word('actions', draw)}"
    return f"{lengthened(start, words, draw)}."


def reword(text: str, draw: Random) -> str:
    """Returns a caption about another person: as long, and similar."""
    return " ".join(
        word("people", draw) if each in _WORDS["people"] else each for each in text.split()
    )


def review(words: int, draw: Random) -> str:
    """Returns a film review in lower case, with spaces around its punctuation."""
    found = list[str]()
    while len(found) < words:
        found += f"{_clause(draw)} {draw.choice(_JOINTS)}".split()
    return " ".join([*found[: words - 1], "."])


def _clause(draw: Random) -> str:
    clause = f"{word('subjects', draw)} {word('predicates', draw)}"
    return lengthened(clause, len(clause.split()) + draw.randint(0, 4), draw).lower()
