"""Engines that run models people bring; their options are checked without torch.

python       a file with load() and predict(batch)
torch        a network of torch: built by Python code, or an archive of torch.export
huggingface  a folder as Hugging Face's libraries save it
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

from pydantic import AfterValidator, Field, ValidationInfo

from jobs.artifacts.declared import SAFE
from jobs.models.engines import huggingface_folder
from jobs.models.engines.engine_spec import (
    GENERAL_TASKS,
    TOKEN_BUCKETS,
    TRUE_OR_FALSE,
    EngineOptions,
    EngineSpec,
    EntryContext,
    Param,
    Task,
)
from jobs.models.engines.huggingface_folder import MOST_TOKENS
from jobs.models.inputs.input_size import MIN_TOKENS, OnTooLong, characters


def _below_folder(path: str, info: ValidationInfo) -> str:
    return str(info.context.below(path)) if info.context else path


FolderPath = Annotated[str, AfterValidator(_below_folder)]
Sha256 = Annotated[str, Field(description="SHA-256 of a file, as `sha256sum` shows it")]
Threads = Annotated[int, Field(ge=1, le=1024)]
_TEXTS = {"text", "embedding", "classification", "tokens"}  # tasks whose inputs are texts
_LONGER_BUCKETS = (768, 1024, 1536, 2048, 3072, 4096, 6144, MOST_TOKENS)
_CHARACTER_BUCKETS = tuple(4**n for n in range(4, 10))  # 256 to 262,144


class PythonOptions(EngineOptions):
    """Options of the engine `python`."""

    requires: ClassVar = {"file_sha256": ("file",)}
    files: ClassVar[tuple[str, ...]] = ("file",)
    digests: ClassVar = {"file_sha256": ("file", "")}

    file: FolderPath = ""
    file_sha256: str = ""
    module: str = ""

    def conflicts(self, entry: EntryContext | None) -> Iterator[str]:
        """Implements `EngineOptions.conflicts`."""
        yield from self.one_of("file", "module")
        yield from super().conflicts(entry)


Autocast: TypeAlias = Literal["", "bfloat16", "float16"]
"""Type of numbers in which torch computes products and convolutions; "": that of the network."""


class TorchOptions(PythonOptions):
    """Options of the engine `torch`."""

    requires: ClassVar = {
        "file_sha256": ("file",),
        "arguments": ("build",),
        "export": ("weights", "export_sha256"),
        "export_sha256": ("export",),
        "weights": ("sha256",),
        "sha256": ("weights",),
    }
    files: ClassVar = ("file", "export", "weights")
    digests: ClassVar = {
        "file_sha256": ("file", ""),
        "export_sha256": ("export", ""),
        "sha256": ("weights", ""),
    }

    build: str = ""  #: class or function that makes the network
    arguments: dict[str, Any] = Field({})
    export: FolderPath = ""  #: archive of torch.export
    export_sha256: str = ""
    weights: FolderPath = ""
    sha256: str = ""  #: of the weights
    dtype: Literal["float32", "float16", "int64", "int32"] = "float32"
    shape: list[int] = Field([])
    autocast: Autocast = ""
    samples: list[Any] = Field([])
    device: str = ""  #: of torch, as cpu or cuda:1
    threads: Threads = 1

    def conflicts(self, entry: EntryContext | None) -> Iterator[str]:
        """Implements `EngineOptions.conflicts`."""
        if not self.export:
            yield from self.one_of("file", "module", "export")
        if not self.export and not self.build:
            yield "build is missing: the class or function that makes the network"
        if self.export and self.build:
            yield "build makes a network, and export is one"
        yield from EngineOptions.conflicts(self, entry)
        if self.weights and not self.weights.endswith(SAFE):
            yield f"weights is {self.weights!r}; only {SAFE} is loaded"


class HuggingFaceOptions(EngineOptions):
    """Options of the engine `huggingface`, whatever the task."""

    digests: ClassVar = huggingface_folder.DIGESTS

    path: FolderPath = Field(description="folder of the model")
    sha256: Sha256  #: of model.safetensors
    config_sha256: Sha256  #: of config.json
    tokenizer_sha256: Sha256  #: of tokenizer.json
    max_tokens: Annotated[int, Field(ge=MIN_TOKENS, le=MOST_TOKENS)] = MOST_TOKENS
    #: end of a text with more tokens: its item or call fails, or it is cut
    on_too_long: OnTooLong = "fail"
    #: of the weights; auto: bfloat16 on GPUs that compute it, else float32
    dtype: Literal["auto", "float32", "float16", "bfloat16"] = "auto"
    #: texts end to end, or padded to the longest; empty: packed where the architecture allows it
    layout: Literal["", "packed", "padded"] = ""
    device: str = ""
    threads: Threads = 1

    def file_problems(self, task: Task) -> Iterator[str]:
        """Implements `EngineOptions.file_problems`."""
        return huggingface_folder.file_problems(task, self.path, self.layout)


class EmbeddingOptions(HuggingFaceOptions):
    """Options of a folder that embeds texts."""

    pooling: Literal["mean", "cls", "last"] = "mean"
    normalize: bool = True


class RerankingOptions(HuggingFaceOptions):
    """Options of a folder that scores texts against a query."""

    activation: Literal["sigmoid", "none"] = "none"


def pairs(value: Any) -> str | None:
    """Returns what is wrong with a query and its documents, or None."""
    if not isinstance(value, dict) or value.keys() != {"query", "documents"}:
        return "takes an object of query and documents, nothing else"
    if not isinstance(value["query"], str):
        return "takes a string as its query"
    documents = value["documents"]
    if not isinstance(documents, list) or not all(isinstance(d, str) for d in documents):
        return "takes a list of strings as its documents"
    return None


def pair_characters(value: Any, *_: Mapping[str, Any]) -> int:
    """Returns the characters of all pairs of the query and a document."""
    documents = value["documents"]
    return max(1, len(value["query"]) * len(documents) + sum(map(len, documents)))


def _by_task(spec: EngineSpec) -> EngineSpec:
    """Adds the general tasks to a spec; the task decides about the inputs."""
    tasks = {task: replace(spec, task=task) for task in GENERAL_TASKS}
    for task in tasks:
        if task in _TEXTS:
            tasks[task] = replace(tasks[task], text_only=True, takes_bytes=False)
    tasks["reranking"] = replace(tasks["reranking"], input_problem=pairs)
    return replace(spec, by_task=tasks)


def _huggingface(
    task: Task, options: type[HuggingFaceOptions] = HuggingFaceOptions, **params: Param
) -> EngineSpec:
    """Returns the spec of texts as tokens, in length buckets where launches are padded."""
    return EngineSpec(
        True,
        "tokens",
        params,
        huggingface_folder.tokens,
        (*TOKEN_BUCKETS, *_LONGER_BUCKETS),
        task,
        longest=huggingface_folder.longest,
        pads=huggingface_folder.pads,
        options=options,
        measured=True,
        context=huggingface_folder.longest,
    )


PYTHON = _by_task(
    EngineSpec(
        False, "characters", {}, characters, options=PythonOptions, pooled=True, takes_bytes=True
    )
)
TORCH = _by_task(EngineSpec(False, "items", {}, lambda *_: 1, options=TorchOptions))

_TRUNCATE = Param.whole("tokens", MIN_TOKENS, MOST_TOKENS)
_TOP_K = Param.whole("labels", 1, 1_000_000)
HUGGINGFACE = replace(
    _huggingface("any"),
    by_task={
        "classification": _huggingface("classification", truncate=_TRUNCATE, top_k=_TOP_K),
        "tokens": _huggingface("tokens", truncate=_TRUNCATE),
        "embedding": _huggingface(
            "embedding", EmbeddingOptions, truncate=_TRUNCATE, normalize=TRUE_OR_FALSE
        ),
        "reranking": replace(
            _huggingface("reranking", RerankingOptions),
            text_only=False,
            input_problem=pairs,
            # The pairs of an item are rows of their own in whatever launch they are.
            unit="characters",
            size=pair_characters,
            buckets=_CHARACTER_BUCKETS,
            longest=lambda options: _CHARACTER_BUCKETS[-1],
            context=huggingface_folder.longest,
            pads=lambda options: False,
        ),
    },
)
"""Serves nothing without a task in the entry."""
