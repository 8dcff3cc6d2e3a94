"""Engine `transformers`: a folder of a causal language model, in a process of its own.

The process holds weights and KV cache. The host's step is one message to it and one answer. What
kills it (memory, a kernel, an input) costs its sequences one start: the host adds them again.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jobs.models import artifacts
from jobs.models.engines import huggingface_folder
from jobs.models.inputs import generation
from workers.engines.generator import Capacity, GeneratorDied, NewSequence, Prompt, Step
from workers.engines.protocol import InvalidInput
from workers.engines.transformers import samples
from workers.engines.transformers.messages import Loaded, Options, Turn
from workers.engines.transformers.process import ChildProcess
from workers.engines.transformers.prompts import Prompts


class TransformersGenerator:
    """Generator of one folder, or of a model by the name of `builtin`; the options are those of the
    model's entry.

    `max_step_s` and `max_load_s` bound a step and a load of the process. Raises ValueError where
    folder or options don't fit, Untrusted where a file isn't the declared one.
    """

    def __init__(
        self,
        *,
        path: str = "",
        builtin: str = "",
        sha256: str = "",
        config_sha256: str = "",
        tokenizer_sha256: str = "",
        dtype: str = "float32",
        device: str | None = None,
        threads: int | None = None,
        blocks: int = 0,
        cache_mb: int = 0,
        block_tokens: int = 0,
        sequences: int = 16,
        context_tokens: int = 0,
        max_step_s: float = 60.0,
        max_load_s: float = 600.0,
    ) -> None:
        folder = samples.folder(builtin) if builtin else Path(path)
        if wrong := list(huggingface_folder.file_problems("chat", str(folder))):
            raise ValueError("; ".join(wrong))
        if not builtin:
            _verify(folder, sha256, config_sha256, tokenizer_sha256)
        self._options = Options(
            path=str(folder),
            dtype=dtype,
            device=device or "",
            threads=threads or os.cpu_count() or 1,
            blocks=blocks,
            cache_mb=cache_mb,
            block_tokens=block_tokens,
            sequences=sequences,
            context_tokens=context_tokens,
        )
        self._max_step_s, self._max_load_s = max_step_s, max_load_s
        self._changes: list[NewSequence | str] = []
        self._live: set[str] = set()
        self._process, self._loaded = self._start()
        self._free_blocks = self._loaded.capacity.blocks
        self._prompts = Prompts(
            folder, self._loaded.vocabulary, self._loaded.capacity.context_tokens
        )

    @property
    def capacity(self) -> Capacity:
        """Bounds, as loaded."""
        return self._loaded.capacity

    @property
    def pid(self) -> int:
        """Id of the process that holds the model."""
        return self._process.pid

    def prepare(self, inputs: Sequence[Any]) -> list[Prompt | InvalidInput]:
        """Implements `Generator.prepare`."""
        return [self._prepare(value) for value in inputs]

    def _prepare(self, value: Any) -> Prompt | InvalidInput:
        try:
            return self._prompts.prompt(generation.parse(value))
        except ValueError as error:
            return InvalidInput(str(error))

    def add(self, sequence: NewSequence) -> None:
        """Implements `Generator.add`. Raises ValueError for an id that is there already."""
        if sequence.id in self._live:
            raise ValueError(f"there is a sequence {sequence.id} already")
        self._live.add(sequence.id)
        self._changes.append(sequence)

    def abort(self, id: str) -> None:
        """Implements `Generator.abort`."""
        if id in self._live:
            self._live.remove(id)
            self._changes.append(id)

    def step(self, max_prefill_tokens: int) -> Step:
        """Implements `Generator.step`: the changes since the last one go to the process first."""
        if not self._live and not self._changes:
            return Step(free_blocks=self._free_blocks)
        turn, self._changes = Turn(self._changes, max_prefill_tokens), []
        try:
            step: Step = self._process.ask(turn, self._max_step_s)
        except (RuntimeError, ValueError) as error:
            raise GeneratorDied(str(error)) from error
        self._live -= {emitted.id for emitted in step.emitted if emitted.finish or emitted.error}
        self._free_blocks = step.free_blocks
        return step

    def restart(self) -> None:
        """Implements `Generator.restart`."""
        self._process.kill()
        self._changes, self._live = [], set()
        self._process, self._loaded = self._start()
        self._free_blocks = self._loaded.capacity.blocks

    def memory_mb(self) -> float:
        """Returns the size of weights and KV cache, MiB."""
        return self._loaded.memory_mb

    def close(self) -> None:
        """Ends the process."""
        self._process.kill()

    def _start(self) -> tuple[ChildProcess, Loaded]:
        process = ChildProcess(self._options.threads)
        try:
            loaded: Loaded = process.ask(self._options, self._max_load_s)
        except GeneratorDied as error:
            raise RuntimeError(f"the model can't be loaded: {error}") from error
        return process, loaded


def _verify(folder: Path, sha256: str, config_sha256: str, tokenizer_sha256: str) -> None:
    artifacts.weights(folder / huggingface_folder.WEIGHTS, sha256)
    artifacts.declared(folder / huggingface_folder.CONFIG, config_sha256, "config_sha256")
    artifacts.declared(folder / huggingface_folder.TOKENIZER, tokenizer_sha256, "tokenizer_sha256")
