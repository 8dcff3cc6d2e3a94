"""Check of grammars: in a process that the kernel bounds, and remembered."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jobs.models.inputs.generation import parse
from tests.support.generation import tiny_llama
from tests.support.wait import PATIENCE_S
from workers.engines.transformers.structured import checker as checking
from workers.engines.transformers.structured.checker import GrammarChecker
from workers.engines.transformers.structured.compiler import Vocabulary

pytestmark = pytest.mark.heavy

TRAP = """
import time
from multiprocessing.connection import Connection

from workers.engines.transformers.child_life import live
from workers.engines.transformers.structured.__main__ import limit_memory, limit_time


def serve(pipe: Connection) -> None:
    pipe.recv()
    limit_memory()
    pipe.send("")
    while True:
        grammar = pipe.recv()
        limit_time()
        while "spin" in grammar:
            pass
        held = bytearray(1 << 40) if "grow" in grammar else b""
        pipe.send("")


live(serve)
"""


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory: pytest.TempPathFactory) -> Vocabulary:
    folder = tmp_path_factory.mktemp("tokenizer")
    tiny_llama.save_tokenizer(folder)
    return Vocabulary(str(folder / "tokenizer.json"), tiny_llama.VOCABULARY, (tiny_llama.END,))


@pytest.fixture
def checker(vocabulary: Vocabulary) -> Iterator[GrammarChecker]:
    made = GrammarChecker(vocabulary, 6 * PATIENCE_S)
    yield made
    made.close()


def check(checker: GrammarChecker, **fields: Any) -> str:
    return checker.checked(parse({"prompt": "a", **fields}))


def test_a_grammar_is_checked_once_and_without_one_no_process_starts(
    checker: GrammarChecker,
) -> None:
    assert check(checker) == ""
    assert checker.pid == 0
    grammar = check(checker, regex="ab")
    with pytest.raises(ValueError, match="regex can't be compiled"):
        check(checker, regex="(")
    os.kill(checker.pid, signal.SIGSTOP)
    assert check(checker, regex="ab") == grammar
    with pytest.raises(ValueError, match="regex can't be compiled"):
        check(checker, regex="(")


@pytest.mark.parametrize("trap", ["spin", "grow"])
def test_what_needs_too_much_is_refused_and_the_next_one_checked(
    checker: GrammarChecker, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, trap: str
) -> None:
    (tmp_path / "grammar_trap.py").write_text(TRAP)
    monkeypatch.setattr(checking, "_MODULE", "grammar_trap")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ValueError, match="more than 1 s, or more than 1024 MiB of memory"):
        check(checker, regex=trap)
    assert check(checker, regex="harmless")


def test_a_tokenizer_that_the_library_cannot_read_is_told(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text('{"version": "1.0"}')
    unread = GrammarChecker(Vocabulary(str(tmp_path / "tokenizer.json"), 9, ()), 6 * PATIENCE_S)
    for _ in range(2):
        with pytest.raises(ValueError, match="regex needs a tokenizer that llguidance reads"):
            check(unread, regex="a")
    assert unread.pid == 0


def test_without_the_library_a_request_is_refused_with_what_to_install(
    checker: GrammarChecker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checking, "find_spec", lambda _: None)
    with pytest.raises(ValueError, match="regex needs the package llguidance"):
        check(checker, regex="a")
