"""A process beside the benchmark that answers lines of JSON with lines of JSON."""

import json
import subprocess
import sys
from signal import SIGTERM
from types import TracebackType
from typing import Any, TypeVar

from ops.processes.children import die_with_parent

_Self = TypeVar("_Self", bound="ChildProcess")


class ChildProcess:
    """Runs `python -m MODULE ARGUMENTS`, and waits for its answers without using the CPU."""

    def __init__(self, module: str, *arguments: str) -> None:
        command = die_with_parent([sys.executable, "-m", module, *arguments], SIGTERM)
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def ask(self, question: Any) -> Any:
        assert self._process.stdin
        assert self._process.stdout
        print(json.dumps(question), file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError(f"the process beside ended with {self._process.wait()}; see above")
        return json.loads(answer)

    def __enter__(self: _Self) -> _Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.wait()
