"""`python -m workers.engines.transformers.structured FD PARENT`: the process that checks grammars.

Each may use so much CPU time and memory; the kernel ends the process that needs more.
"""

import resource
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING

from workers.engines.transformers.child_life import live
from workers.engines.transformers.structured.compiler import (
    MOST_MEMORY_MB,
    MOST_S,
    Vocabulary,
    compiled,
    first_mask,
    tokenizer_of,
)

if TYPE_CHECKING:
    from llguidance import LLTokenizer

_MIB = 1 << 20
_PAGE = resource.getpagesize()


def serve(pipe: Connection) -> None:
    """Answers each grammar with what is wrong with it, or "", until the socket is closed."""
    with suppress(EOFError, ConnectionError):
        vocabulary: Vocabulary = pipe.recv()
        try:
            tokenizer = tokenizer_of(vocabulary)
        except Exception as error:
            pipe.send(ValueError(f"needs a tokenizer that llguidance reads: {error}"))
            return
        limit_memory()
        pipe.send("")
        while True:
            grammar: str = pipe.recv()
            limit_time()
            pipe.send(problem_with(tokenizer, grammar))


def problem_with(tokenizer: "LLTokenizer", grammar: str) -> str:
    """Compiles a grammar and computes its first mask; returns what is wrong with it, or ""."""
    try:
        first_mask(tokenizer, compiled(tokenizer, grammar))
    except ValueError as error:
        return str(error)
    return ""


def limit_memory() -> None:
    """Bounds the memory that this process may have beside what it has now."""
    with open("/proc/self/statm") as statm:
        has = int(statm.read().split()[0]) * _PAGE
    most = has + MOST_MEMORY_MB * _MIB
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


def limit_time() -> None:
    """Bounds the CPU time that this process may use from now on."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    most = int(used.ru_utime + used.ru_stime) + MOST_S + 1  # the kernel counts whole seconds
    resource.setrlimit(resource.RLIMIT_CPU, (most, resource.RLIM_INFINITY))


if __name__ == "__main__":
    live(serve)
