"""llama.cpp on the GGUF file of the built-in model: one thread, many sequences side by side."""

import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from jobs.models.inputs import generation
from ops.bench.harness.child_process import ChildProcess, started
from workers.engines.transformers.prompts import Prompts
from workers.engines.transformers.samples import smollm2

_VOCABULARY, _CONTEXT = 49_152, 8_192
_APP = Path(__file__).with_name("peers") / "llamacpp_app.py"


@contextmanager
def generator(
    python: str, inputs: Sequence[dict[str, Any]], tokens: int
) -> Iterator[Callable[[], float]]:
    """Starts it; yields a function that generates so many tokens of each chat, all side by side,
    and returns tokens a CPU second.

    python: that of an environment with llama-cpp-python.
    """
    order = {"prompts": _prompts(inputs), "tokens": tokens}
    with tempfile.TemporaryDirectory(prefix="millrace-bench-") as folder:
        command = [python, str(_APP), str(smollm2.fetch(Path(folder)))]
        with started(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            child = ChildProcess(process)

            def run() -> float:
                """Generates all."""
                found = child.ask(order)
                return float(found["tokens"] / found["cpu_s"])

            yield run


def _prompts(inputs: Sequence[dict[str, Any]]) -> list[list[int]]:
    """Returns token ids as the engine has them."""
    folder = smollm2.folder()
    prompts = Prompts(folder, _VOCABULARY, _CONTEXT)
    return [list(prompts.prompt(generation.parse(body)).tokens) for body in inputs]
