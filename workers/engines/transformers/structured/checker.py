"""Check of grammars before they reach a model: in a process that can be killed."""

import threading
from collections import OrderedDict
from hashlib import blake2b
from importlib.util import find_spec
from signal import SIGKILL, SIGTERM

from jobs import clock
from jobs.models.inputs.generation import GenerationRequest
from workers.engines.generator import GeneratorDied
from workers.engines.transformers.process import ChildProcess
from workers.engines.transformers.structured.compiler import MOST_MEMORY_MB, MOST_S, Vocabulary
from workers.engines.transformers.structured.grammar import field_of, grammar_of

_MODULE = "workers.engines.transformers.structured"
_START, _ANSWER = 1 / 4, 1 / 6  # of the time that a check may take, which has two attempts
_KNOWN = 4096  # grammars whose check is remembered


class GrammarChecker:
    """Checks grammars by compiling them; its process starts with the first one.

    max_s: longest that a check may take, on a machine however busy, s.
    """

    def __init__(self, vocabulary: Vocabulary, max_s: float) -> None:
        self._vocabulary, self._max_s = vocabulary, max_s
        self._lock = threading.Lock()  # guards what is below
        self._process: ChildProcess | None = None
        self._unusable = ""  # why no grammar can be followed
        self._known: OrderedDict[bytes, str] = OrderedDict()  # what is wrong, by digest

    @property
    def pid(self) -> int:
        """Id of the process; 0: none was needed."""
        return self._process.pid if self._process else 0

    def checked(self, request: GenerationRequest) -> str:
        """Returns the grammar of a request; "": it is free. Raises ValueError where that can't be
        compiled within the bounds."""
        if not request.constrained_by:
            return ""
        if find_spec("llguidance") is None:
            where = field_of(request)
            install = "pip install 'millrace[generate]'"
            raise ValueError(f"{where} needs the package llguidance: {install}")
        grammar = grammar_of(request)
        digest = blake2b(grammar.encode(errors="surrogatepass")).digest()
        with self._lock:
            problem = self._known.get(digest)
            if problem is None and not self._unusable:
                problem = self._known[digest] = self._problem(grammar)
            if self._unusable:
                raise ValueError(f"{field_of(request)} {self._unusable}")
            self._known.move_to_end(digest)
            if len(self._known) > _KNOWN:
                self._known.popitem(last=False)
        if problem:
            raise ValueError(f"{field_of(request)} can't be compiled: {problem}")
        return grammar

    def close(self) -> None:
        """Ends the process."""
        with self._lock:
            if self._process:
                self._process.kill()
            self._process = None

    def _problem(self, grammar: str) -> str:
        """Returns what is wrong with a grammar, or "". One whose process is killed from outside is
        tried again. Raises RuntimeError where no process starts."""
        for again in (True, False):
            try:
                process = self._process or self._start()
            except ValueError as error:
                self._unusable = str(error)
                return ""
            try:
                answer: str = process.ask(grammar, self._max_s * _ANSWER)
            except GeneratorDied:
                self._process = None
                if again and process.exit_status in (-SIGKILL, -SIGTERM):
                    continue
                break
            return answer
        return f"it needs more than {MOST_S} s, or more than {MOST_MEMORY_MB} MiB of memory"

    def _start(self) -> ChildProcess:
        until_s = clock.monotonic() + self._max_s * _START
        process = ChildProcess(1, _MODULE, within_s=self._max_s * _START / 2)
        try:
            process.ask(self._vocabulary, until_s - clock.monotonic())
        except GeneratorDied as error:
            raise RuntimeError(f"grammars can't be checked: {error}") from error
        self._process = process
        return process
