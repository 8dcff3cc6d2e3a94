"""Engines that generate text; their options are checked without torch.

transformers  a folder of a causal language model, as Hugging Face's libraries save it
"""

from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from jobs.models.adapters import SLOTS
from jobs.models.engines import huggingface_folder
from jobs.models.engines.custom_engines import FolderPath, Sha256, Threads
from jobs.models.engines.engine_spec import EngineOptions, EngineSpec, EntryContext, Task
from jobs.models.inputs import generation
from jobs.models.inputs.input_size import guessed_tokens

_Count = Annotated[int, Field(ge=0, le=1 << 24)]


class TransformersOptions(EngineOptions):
    """Options of the engine `transformers`."""

    requires: ClassVar = {"path": tuple(huggingface_folder.DIGESTS)}
    digests: ClassVar = huggingface_folder.DIGESTS

    path: FolderPath = Field("", description="folder of the model")
    builtin: Literal["", "smollm2"] = ""  #: a model that is fetched, in place of a folder
    sha256: Sha256 = ""  #: of model.safetensors
    config_sha256: Sha256 = ""  #: of config.json
    tokenizer_sha256: Sha256 = ""  #: of tokenizer.json
    dtype: Literal["float32", "float16", "bfloat16"] = "float32"
    quantization: Literal["", "int8"] = ""  #: of the weights of linear layers, as they are loaded
    device: str = ""  #: of torch, as cpu or cuda:1; or a UUID (GPU-…, MIG-…)
    threads: Threads = 1
    blocks: _Count = 0  #: of the KV cache; 0: by cache_mb
    cache_mb: _Count = 0  #: size of the KV cache, MiB; 0: 1,024, or 85 % of a GPU's free memory
    block_tokens: Annotated[int, Field(ge=0, le=1024)] = 0  #: 0: 16 on a CPU, 64 on a GPU
    sequences: Annotated[int, Field(ge=1, le=4096)] = 16  #: most of a step
    adapter_slots: Annotated[int, Field(ge=1, le=256)] = SLOTS  #: adapters in memory at a time
    context_tokens: _Count = 0  #: most of a sequence, prompt and output; 0: the model's
    #: in which the model writes tool calls; "": as its chat template shows, else Hermes'
    tool_call_format: Literal["", "hermes", "llama3_json", "mistral"] = ""

    def conflicts(self, entry: EntryContext | None) -> Iterator[str]:
        """Implements `EngineOptions.conflicts`."""
        yield from self.one_of("path", "builtin")
        if {"blocks", "cache_mb"} <= self.model_fields_set:
            yield "blocks and cache_mb both say how large the KV cache is; leave one out"
        yield from super().conflicts(entry)

    def file_problems(self, task: Task) -> Iterator[str]:
        """Implements `EngineOptions.file_problems`."""
        if self.path:
            yield from huggingface_folder.file_problems(task, self.path)


TRANSFORMERS = EngineSpec(
    False,
    "tokens",
    {},
    guessed_tokens,
    task="chat",
    input_problem=generation.refuse,
    options=TransformersOptions,
    generates=True,
    adapters="files",
    context=huggingface_folder.context_tokens,
)
