"""Engines that run models people bring; their options are checked without torch.

python       a file with load() and predict(batch)
torch        a network of torch: built by Python code, or an archive of torch.export
huggingface  a folder as Hugging Face's libraries save it
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, StrictInt

from jobs.models.artifacts import SAFE
from jobs.models.engines import huggingface_folder
from jobs.models.engines.engine_spec import (
    GENERAL_TASKS,
    TOKEN_BUCKETS,
    EngineOptions,
    EngineSpec,
    Param,
    Task,
)
from jobs.models.engines.huggingface_folder import MOST_TOKENS
from jobs.models.inputs.input_size import MIN_TOKENS, characters
from jobs.models.tables import FilePath, Flag, Text, whole

_Sha256 = Annotated[str, Field(description="a SHA-256, as `sha256sum` shows it")]
_Device = Annotated[str, Field(description="a device of torch, as cpu or cuda:1")]
_Threads = Annotated[int, whole(1, 1024)]
_TEXTS = {"text", "embedding", "classification", "tokens"}  # tasks whose inputs are texts
_LONGER_BUCKETS = (768, 1024, 1536, 2048, 3072, 4096, 6144, MOST_TOKENS)
_CHARACTER_BUCKETS = tuple(4**n for n in range(4, 10))  # 256 to 262,144


class PythonOptions(EngineOptions):
    """Options of the engine `python`."""

    file: FilePath = ""
    file_sha256: _Sha256 = ""
    module: Text = ""

    def conflicts(self) -> Iterator[str]:
        """Implements `EngineOptions.conflicts`."""
        yield from self._one_of("file", "module")
        yield from self._only_with("file", "file_sha256")

    def file_problems(self) -> Iterable[str]:
        """Implements `EngineOptions.file_problems`."""
        return self._absent("file")


class TorchOptions(EngineOptions):
    """Options of the engine `torch`."""

    file: FilePath = ""
    file_sha256: _Sha256 = ""
    module: Text = ""
    build: Text = ""  #: class or function that makes the network
    arguments: dict[str, Any] = Field({}, description="a table")
    export: FilePath = ""  #: archive of torch.export
    export_sha256: _Sha256 = ""
    weights: FilePath = ""
    sha256: _Sha256 = ""  #: of the weights
    dtype: Annotated[
        Literal["float32", "float16", "int64", "int32"],
        Field(description="float32, float16, int64 or int32"),
    ] = "float32"
    shape: list[StrictInt] = Field([], description="a list of whole numbers")
    samples: list[Any] = Field([], description="a list of inputs")
    device: _Device = ""
    threads: _Threads = 1

    def conflicts(self) -> Iterator[str]:
        """Implements `EngineOptions.conflicts`."""
        if self.export:
            yield from self._only_with("weights", "export")
            yield from self._only_with("export_sha256", "export")
            yield from self._only_with("build", "arguments")
            if self.build:
                yield "options.build makes a network, and options.export is one"
        else:
            yield from self._one_of("file", "module", "export")
            yield from self._only_with("export", "export_sha256")
            if not self.build:
                yield "options.build is missing: the class or function that makes the network"
        yield from self._only_with("file", "file_sha256")
        yield from self._only_with("weights", "sha256")
        yield from self._only_with("sha256", "weights")
        if self.weights and not self.weights.endswith(SAFE):
            yield f"options.weights is {self.weights!r}; only {SAFE} is loaded"

    def file_problems(self) -> Iterable[str]:
        """Implements `EngineOptions.file_problems`."""
        return self._absent("file", "export", "weights")


class HuggingFaceOptions(EngineOptions):
    """Options of the engine `huggingface`, whatever the task."""

    task: ClassVar[Task] = "any"
    path: FilePath  #: folder
    sha256: _Sha256  #: of the weights
    max_tokens: Annotated[int, whole(MIN_TOKENS, MOST_TOKENS, "tokens")] = MOST_TOKENS
    dtype: Annotated[
        Literal["float32", "float16", "bfloat16"],
        Field(description="float32, float16 or bfloat16"),
    ] = "float32"
    device: _Device = ""
    threads: _Threads = 1

    def file_problems(self) -> Iterable[str]:
        """Implements `EngineOptions.file_problems`."""
        return huggingface_folder.file_problems(self.task, self.model_dump())


class ClassificationOptions(HuggingFaceOptions):
    """Options of a folder that labels texts."""

    task = "classification"


class TokensOptions(HuggingFaceOptions):
    """Options of a folder that labels tokens."""

    task = "tokens"


class EmbeddingOptions(HuggingFaceOptions):
    """Options of a folder that embeds texts."""

    task = "embedding"
    pooling: Annotated[Literal["mean", "cls"], Field(description="mean or cls")] = "mean"
    normalize: Flag = True


class RerankingOptions(HuggingFaceOptions):
    """Options of a folder that scores texts against a query."""

    task = "reranking"
    activation: Annotated[Literal["sigmoid", "none"], Field(description="sigmoid or none")] = "none"


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
    tasks = {task: replace(spec, task=task, text_only=task in _TEXTS) for task in GENERAL_TASKS}
    tasks["reranking"] = replace(tasks["reranking"], input_problem=pairs)
    return replace(spec, by_task=tasks)


def _huggingface(options: type[HuggingFaceOptions], **params: Param) -> EngineSpec:
    """Returns the spec of texts as tokens, in length buckets, padded."""
    return EngineSpec(
        True,
        "tokens",
        params,
        huggingface_folder.tokens,
        (*TOKEN_BUCKETS, *_LONGER_BUCKETS),
        options.task,
        longest=huggingface_folder.longest,
        pads=True,
        options=options,
    )


PYTHON = _by_task(EngineSpec(False, "characters", {}, characters, options=PythonOptions))
TORCH = _by_task(EngineSpec(False, "items", {}, lambda *_: 1, options=TorchOptions))

_TRUNCATE = Param(
    int,
    f"a whole number of tokens, {MIN_TOKENS} to {MOST_TOKENS}",
    range(MIN_TOKENS, MOST_TOKENS + 1),
)
_TOP_K = Param(int, "a whole number of labels, 1 or more", range(1, 1_000_001))
_NORMALIZE = Param(bool, "true or false")
HUGGINGFACE = replace(
    _huggingface(HuggingFaceOptions),
    by_task={
        "classification": _huggingface(ClassificationOptions, truncate=_TRUNCATE, top_k=_TOP_K),
        "tokens": _huggingface(TokensOptions, truncate=_TRUNCATE),
        "embedding": _huggingface(EmbeddingOptions, truncate=_TRUNCATE, normalize=_NORMALIZE),
        "reranking": replace(
            _huggingface(RerankingOptions),
            text_only=False,
            input_problem=pairs,
            # The pairs of an item are rows of their own in whatever launch they are.
            unit="characters",
            size=pair_characters,
            buckets=_CHARACTER_BUCKETS,
            longest=lambda options: _CHARACTER_BUCKETS[-1],
            pads=False,
        ),
    },
)
"""Serves nothing without a task in the entry."""
