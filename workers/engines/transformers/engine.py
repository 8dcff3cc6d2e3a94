"""Engine `transformers`: a folder of a causal language model, in a process of its own.

The process holds weights and KV cache. The host's step is one message to it and one answer. What
kills it (memory, a kernel, an input) costs its sequences one start: the host adds them again.
"""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from jobs import clock
from jobs.artifacts import declared as artifacts
from jobs.models.adapters import SLOTS, Adapter
from jobs.models.engines import huggingface_folder
from jobs.models.inputs.generation import GenerationRequest
from workers.engines import cuda_uuid
from workers.engines.generator import (
    Capacity,
    GeneratorDied,
    NewSequence,
    Prompt,
    Step,
    Tokenized,
    prompts,
)
from workers.engines.protocol import InvalidInput
from workers.engines.transformers import samples
from workers.engines.transformers.messages import Change, LoadAdapter, Loaded, Options, Turn
from workers.engines.transformers.process import ChildProcess
from workers.engines.transformers.prompts import Prompts
from workers.engines.transformers.structured.checker import GrammarChecker


class TransformersGenerator:
    """Generator of one folder, or of a model by the name of `builtin`; the options are those of the
    model's entry.

    `max_step_s` and `max_load_s` bound a step and a load of the process; its memory plan has room
    for `adapters`, and others may be loaded. Raises ValueError where folder or options don't fit,
    Untrusted where a file isn't the declared one.
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
        quantization: str = "",
        device: str | None = None,
        threads: int | None = None,
        blocks: int = 0,
        cache_mb: int = 0,
        block_tokens: int = 0,
        sequences: int = 16,
        context_tokens: int = 0,
        tool_call_format: str = "",
        adapter_slots: int = SLOTS,
        adapters: Sequence[Adapter] = (),
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
            quantization=quantization,
            device=cuda_uuid.torch_name(device or ""),
            threads=threads or os.cpu_count() or 1,
            blocks=blocks,
            cache_mb=cache_mb,
            block_tokens=block_tokens,
            sequences=sequences,
            context_tokens=context_tokens,
            adapter_slots=adapter_slots,
            adapters=adapters,
        )
        self._device = device or ""
        self._max_step_s, self._max_load_s = max_step_s, max_load_s
        self.adapter_slots = adapter_slots
        self._adapters: dict[int, Adapter] = {}  # by slot, loaded or being loaded
        self._loading = set[int]()  # slots
        self._changes: list[Change] = []
        self._live: set[str] = set()
        self._process, self._loaded = self._start()
        self._free_blocks = self._loaded.capacity.blocks
        loaded = self._loaded
        self._prompts = Prompts(
            folder, loaded.vocabulary, loaded.capacity.context_tokens, tool_call_format
        )
        self._grammars = GrammarChecker(self._loaded.grammars, max_step_s)

    @property
    def capacity(self) -> Capacity:
        """Bounds, as loaded."""
        return self._loaded.capacity

    @property
    def pid(self) -> int:
        """Id of the process that holds the model."""
        return self._process.pid

    @property
    def checker_pid(self) -> int:
        """Id of the process that checks grammars; 0: there is none yet."""
        return self._grammars.pid

    def prepare(self, inputs: Sequence[Any]) -> list[Prompt | InvalidInput]:
        """Implements `Generator.prepare`."""
        return prompts(inputs, self._prompt)

    def _prompt(self, _: Any, request: GenerationRequest) -> Prompt:
        prompt = self._prompts.prompt(request)
        return replace(prompt, grammar=self._grammars.checked(request))

    def tokenize(self, request: GenerationRequest) -> Tokenized:
        """Implements `Generator.tokenize`."""
        return self._prompts.tokenized(request)

    def detokenize(self, tokens: Sequence[int]) -> str:
        """Implements `Generator.detokenize`."""
        return self._prompts.text(tokens)

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

    def load_adapter(self, slot: int, adapter: Adapter) -> None:
        """Implements `Adapting.load_adapter`."""
        self._adapters[slot] = adapter
        self._loading.add(slot)
        self._changes.append(LoadAdapter(slot, adapter))

    def step(self, max_prefill_tokens: int, prefills: Sequence[str] = ()) -> Step:
        """Implements `Generator.step`: the changes since the last one go to the process first."""
        if not (self._live or self._changes or self._loading):
            self._process.check()
            return Step(free_blocks=self._free_blocks)
        turn, self._changes = Turn(self._changes, max_prefill_tokens, prefills), []
        try:
            step: Step = self._process.ask(turn, self._max_step_s)
        except (RuntimeError, ValueError) as error:
            raise GeneratorDied(str(error)) from error
        self._live -= {emitted.id for emitted in step.emitted if emitted.finish or emitted.error}
        self._loading -= {loaded.slot for loaded in step.adapters}
        self._free_blocks = step.free_blocks
        return step

    def restart(self) -> None:
        """Implements `Generator.restart`."""
        self._process.kill()
        self._changes, self._live = [], set()
        for slot, adapter in self._adapters.items():
            self._changes.append(LoadAdapter(slot, adapter, at_once=True))
        self._process, self._loaded = self._start()
        self._free_blocks = self._loaded.capacity.blocks

    def memory_mb(self) -> float:
        """Returns the size of weights and KV cache, MiB."""
        return self._loaded.memory_mb

    def close(self) -> None:
        """Ends the processes."""
        self._grammars.close()
        self._process.kill()

    def _start(self) -> tuple[ChildProcess, Loaded]:
        until_s = clock.monotonic() + self._max_load_s
        process = ChildProcess(
            self._options.threads, device=self._device, within_s=self._max_load_s / 2
        )
        try:
            loaded: Loaded = process.ask(self._options, until_s - clock.monotonic())
        except GeneratorDied as error:
            message = f"the model can't be loaded: {error}"
            raise GeneratorDied(message, outside=error.outside) from error
        return process, loaded


def _verify(folder: Path, sha256: str, config_sha256: str, tokenizer_sha256: str) -> None:
    artifacts.weights(folder / huggingface_folder.WEIGHTS, sha256)
    artifacts.declared(folder / huggingface_folder.CONFIG, config_sha256, "config_sha256")
    artifacts.declared(folder / huggingface_folder.TOKENIZER, tokenizer_sha256, "tokenizer_sha256")
