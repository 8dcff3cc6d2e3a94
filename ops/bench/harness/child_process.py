"""Python modules in processes of their own, driven by lines of JSON."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from signal import SIGKILL, SIGTERM
from typing import Any

from jobs.processes import packages
from ops.bench.harness.errors import BenchError
from ops.processes.children import die_with_parent

_END_WITHIN_S = 10.0


class ChildProcess:
    """Reads and writes the pipes of a process; waiting for it uses no CPU."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        assert process.stdin
        assert process.stdout
        self._process, self._input, self._output = process, process.stdin, process.stdout

    def send(self, value: Any = None) -> None:
        """Writes a line."""
        print(json.dumps(value), file=self._input, flush=True)

    def end_input(self) -> None:
        """Closes its standard input."""
        self._input.close()

    def receive(self) -> Any:
        """Waits for a line. Raises BenchError where the process has ended."""
        if line := self._output.readline():
            return json.loads(line)
        raise BenchError(f"a child process ended with {self._process.wait()}; see above")

    def wait(self) -> None:
        """Waits for its end. Raises BenchError where it failed."""
        if code := self._process.wait():
            raise BenchError(f"a child process ended with {code}; see above")

    def ask(self, value: Any = None) -> Any:
        """Sends a line and waits for the answer."""
        self.send(value)
        return self.receive()


def answer_lines(answer: Callable[[Any], Any]) -> None:
    """Answers each line of standard input: the child's side of `ask`."""
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), flush=True)


@contextmanager
def child(module: str, *arguments: str) -> Iterator[ChildProcess]:
    """Runs a module of ours until it is left."""
    command = packages.command(module, *arguments)
    with started(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        yield ChildProcess(process)


@contextmanager
def started(command: Sequence[str], **pipes: Any) -> "Iterator[subprocess.Popen[str]]":
    """Runs a command as the leader of a session until it is left.

    Terminates it then; kills it and what it left after ten seconds.
    """
    argv = die_with_parent(command, SIGTERM)
    with subprocess.Popen(argv, text=True, start_new_session=True, **pipes) as process:
        try:
            yield process
        finally:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(_END_WITHIN_S)
            with suppress(ProcessLookupError):
                os.killpg(process.pid, SIGKILL)
            process.wait()
