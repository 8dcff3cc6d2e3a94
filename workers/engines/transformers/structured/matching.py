"""Grammars in the process of a model: compiled on a thread of their own, then followed."""

from collections import OrderedDict
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

from workers.engines.transformers.structured.compiler import (
    Vocabulary,
    compiled,
    problem_of,
    tokenizer_of,
)

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer

_KEPT = 128  # compiled grammars


class GrammarState:
    """Place of one sequence in its grammar."""

    def __init__(self, matcher: "LLMatcher", emitted: Iterable[int] = ()) -> None:
        self.matcher = matcher.deep_copy()
        for token in emitted:
            self.accept(token)

    def accept(self, token: int) -> None:
        """Takes the next token, which must not be an end token."""
        self.matcher.consume_token(token)

    @property
    def is_complete(self) -> bool:
        """True where nothing can follow."""
        return self.matcher.is_stopped() and not self.matcher.is_error()

    @property
    def problem(self) -> str:
        """Reason why no mask can be computed any more; "": there is none."""
        return problem_of(self.matcher.get_error()) if self.matcher.is_error() else ""


class Grammars:
    """Compiles the grammars of one model, and keeps the latest."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="grammars")
        self._tokenizer: LLTokenizer | None = None
        self._compiled: OrderedDict[str, Future[LLMatcher]] = OrderedDict()

    def compile(self, grammar: str) -> "Future[LLMatcher]":
        """Returns a grammar at its beginning, now or soon; the future may raise ValueError."""
        found = self._compiled.get(grammar)
        if found is None:
            found = self._compiled[grammar] = self._thread.submit(self._compile, grammar)
        self._compiled.move_to_end(grammar)
        if len(self._compiled) > _KEPT:
            self._compiled.popitem(last=False)
        return found

    def _compile(self, grammar: str) -> "LLMatcher":
        if self._tokenizer is None:
            self._tokenizer = tokenizer_of(self._vocabulary)
        return compiled(self._tokenizer, grammar)
