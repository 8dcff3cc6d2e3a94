"""Compilation of grammars within bounds, the same in the process that checks them and in that of
the model.

llguidance bounds itself by the limits below. Its limits of a step hold for each mask.
"""

import re
from dataclasses import dataclass
from itertools import takewhile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer

MOST_S = 1
"""CPU time that a grammar may need to compile, s."""

MOST_MEMORY_MB = 1024
"""Memory that a grammar may need to compile, MiB."""

_LEXER_STATES = 50_000  # of one grammar, 1 to 2 kB each
_GRAMMAR_SYMBOLS = 200_000
_MOST_ERROR = 300  # characters
_PLACE = re.compile(r"^at \d+\(\d+\): (failed to compile JSON schema: )?")
_EXCERPT = re.compile(r"\d+ \| |<non-verbose/>")


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Tokens of a model."""

    tokenizer: str  #: path of tokenizer.json
    size: int  #: ids are below it, those of the model and of the tokenizer
    ends: tuple[int, ...]  #: ids that end a text


def tokenizer_of(vocabulary: Vocabulary) -> "LLTokenizer":
    """Builds llguidance's tokenizer, in about a second."""
    from llguidance import LLTokenizer

    ends = list(vocabulary.ends) or None
    return LLTokenizer(vocabulary.tokenizer, n_vocab=vocabulary.size, eos_token=ends)


def compiled(tokenizer: "LLTokenizer", grammar: str) -> "LLMatcher":
    """Compiles a grammar. Raises ValueError with what is wrong with it."""
    from llguidance import LLMatcher, LLParserLimits

    limits = LLParserLimits(
        max_lexer_states=_LEXER_STATES, max_grammar_size=_GRAMMAR_SYMBOLS, verbose_errors=False
    )
    matcher = LLMatcher(tokenizer, grammar, log_level=0, limits=limits)
    if matcher.is_error():
        raise ValueError(problem_of(matcher.get_error()))
    return matcher


def problem_of(error: str) -> str:
    """Returns an error of llguidance as one line, without its excerpt of the grammar."""
    lines = (line.strip() for line in error.splitlines())
    told = takewhile(lambda line: not _EXCERPT.match(line), filter(None, lines))
    return _PLACE.sub("", " ".join(told))[:_MOST_ERROR]


def first_mask(tokenizer: "LLTokenizer", matcher: "LLMatcher") -> None:
    """Computes the first mask of a grammar. Raises ValueError where its limits don't suffice."""
    from llguidance import numpy

    numpy.fill_next_token_bitmask(matcher, numpy.allocate_token_bitmask(1, tokenizer.vocab_size))
    if matcher.is_error():
        raise ValueError(problem_of(matcher.get_error()))
