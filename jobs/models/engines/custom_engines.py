"""The engines that run models people bring: what their entries may say, checked without torch.

python       a file with load() and predict(batch)
torch        a network of torch: built by Python code, or an archive of torch.export
huggingface  a folder as Hugging Face's libraries save it
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from jobs.models.artifacts import SAFE
from jobs.models.engines import huggingface_folder
from jobs.models.engines.engine_spec import (
    GENERAL_TASKS,
    TOKEN_BUCKETS,
    EngineSpec,
    Options,
    Param,
    Task,
)
from jobs.models.inputs.input_size import MIN_TOKENS, characters

_WORD = Param(str, "a string")
_SHA256 = Param(str, "a SHA-256, as `sha256sum` shows it")
_SAMPLES = Param(list, "a list of inputs")
_ON_TORCH = {
    "device": Param(str, "a device of torch, as cpu or cuda:1"),
    "threads": Param(int, "a whole number, 1 or more", range(1, 1025)),
}
_TRUNCATE = Param(
    int,
    f"a whole number of tokens, {MIN_TOKENS} to {huggingface_folder.MOST_TOKENS}",
    range(MIN_TOKENS, huggingface_folder.MOST_TOKENS + 1),
)
_TEXTS = {"text", "embedding", "classification", "tokens"}  # tasks whose inputs are texts
_LONGER_BUCKETS = (768, 1024, 1536, 2048, 3072, 4096, 6144, huggingface_folder.MOST_TOKENS)
_CHARACTER_BUCKETS = tuple(4**n for n in range(4, 10))  # 256 to 262,144


def _one_of(options: Mapping[str, Any], *names: str) -> Iterator[str]:
    given = [name for name in names if name in options]
    if len(given) != 1:
        found = f"there are {' and '.join(given)}" if given else "there is none"
        yield f"options takes one of {', '.join(names)}; {found}"


def _only_with(options: Mapping[str, Any], other: str, *names: str) -> Iterator[str]:
    for name in names:
        if name in options and other not in options:
            yield f"options.{name} goes with options.{other}, which is missing"


def _files(options: Mapping[str, Any], *names: str) -> Iterator[str]:
    for name in names:
        if name in options and not Path(options[name]).is_file():
            yield f"options.{name}: there is no file {options[name]}"


# -- inputs


def pairs(value: Any) -> str | None:
    """What is wrong with a query and its documents."""
    if not isinstance(value, dict) or value.keys() != {"query", "documents"}:
        return "takes an object of query and documents, nothing else"
    if not isinstance(value["query"], str):
        return "takes a string as its query"
    documents = value["documents"]
    if not isinstance(documents, list) or not all(isinstance(d, str) for d in documents):
        return "takes a list of strings as its documents"
    return None


def pair_characters(value: Any, *_: Mapping[str, Any]) -> int:
    """Characters of all pairs of the query and a document."""
    documents = value["documents"]
    return max(1, len(value["query"]) * len(documents) + sum(map(len, documents)))


def _doing(task: Task, kind: EngineSpec) -> EngineSpec:
    """A kind whose inputs are what the task says."""
    if task == "reranking":
        return replace(kind, task=task, input_problem=pairs)
    return replace(kind, task=task, text_only=task in _TEXTS)


# -- python


def _wrong_python(options: Mapping[str, Any]) -> Iterator[str]:
    yield from _one_of(options, "file", "module")
    yield from _only_with(options, "file", "file_sha256")


_PYTHON = EngineSpec(
    False,
    "characters",
    {},
    characters,
    options=Options(
        {"file": _WORD, "file_sha256": _SHA256, "module": _WORD},
        frozenset({"file"}),
        _wrong_python,
        lambda options: _files(options, "file"),
    ),
)
PYTHON = replace(_PYTHON, by_task={task: _doing(task, _PYTHON) for task in GENERAL_TASKS})


# -- torch


def _wrong_torch(options: Mapping[str, Any]) -> Iterator[str]:
    if "export" in options:
        yield from _only_with(options, "weights", "export")
        yield from _only_with(options, "export_sha256", "export")
        yield from _only_with(options, "build", "arguments")
        if "build" in options:
            yield "options.build makes a network, and options.export is one"
    else:
        yield from _one_of(options, "file", "module", "export")
        yield from _only_with(options, "export", "export_sha256")
        if not options.get("build"):
            yield "options.build is missing: the class or function that makes the network"
    if not all(type(n) is int for n in options.get("shape", ())):
        yield "options.shape must be a list of whole numbers"
    yield from _only_with(options, "file", "file_sha256")
    yield from _weights(options)


def _weights(options: Mapping[str, Any]) -> Iterator[str]:
    yield from _only_with(options, "sha256", "weights")
    yield from _only_with(options, "weights", "sha256")
    if not options.get("weights", SAFE).endswith(SAFE):
        yield f"options.weights is {options['weights']!r}; only {SAFE} is loaded"


_TORCH = EngineSpec(
    False,
    "items",
    {},
    lambda value, params, options: 1,
    options=Options(
        {
            "file": _WORD,
            "file_sha256": _SHA256,
            "module": _WORD,
            "build": _WORD,
            "arguments": Param(dict, "a table"),
            "export": _WORD,
            "export_sha256": _SHA256,
            "weights": _WORD,
            "sha256": _SHA256,
            "dtype": Param(
                str, "float32, float16, int64 or int32",
                among=("float32", "float16", "int64", "int32"),
            ),
            "shape": Param(list, "a list of whole numbers"),
            "samples": _SAMPLES,
            **_ON_TORCH,
        },
        frozenset({"file", "export", "weights"}),
        _wrong_torch,
        lambda options: _files(options, "file", "export", "weights"),
    ),
)  # fmt: skip
TORCH = replace(_TORCH, by_task={task: _doing(task, _TORCH) for task in GENERAL_TASKS})


# -- huggingface


def _required(*names: str) -> Callable[[Mapping[str, Any]], Iterator[str]]:
    def wrong(options: Mapping[str, Any]) -> Iterator[str]:
        for name in names:
            if name not in options:
                yield f"options.{name} is missing"

    return wrong


def _huggingface(
    task: Task, params: Mapping[str, Param], options: Mapping[str, Param]
) -> EngineSpec:
    """Texts to tokens, in length buckets, padded."""
    known = {
        "path": _WORD,
        "sha256": _SHA256,
        "max_tokens": _TRUNCATE,
        "dtype": Param(
            str, "float32, float16 or bfloat16", among=("float32", "float16", "bfloat16")
        ),
        **_ON_TORCH,
        **options,
    }
    return EngineSpec(
        True,
        "tokens",
        params,
        huggingface_folder.tokens,
        (*TOKEN_BUCKETS, *_LONGER_BUCKETS),
        task,
        longest=huggingface_folder.longest,
        pads=True,
        options=Options(
            known,
            frozenset({"path"}),
            _required("path", "sha256"),
            partial(huggingface_folder.file_problems, task),
        ),
    )


_CUT = {"truncate": _TRUNCATE}
_TOP_K = {"top_k": Param(int, "a whole number of labels, 1 or more", range(1, 1_000_001))}
_NORMALIZE = {"normalize": Param(bool, "true or false")}
_POOLING = {"pooling": Param(str, "mean or cls", among=("mean", "cls"))}
_ACTIVATION = {"activation": Param(str, "sigmoid or none", among=("sigmoid", "none"))}

_RERANKING = replace(
    _huggingface("reranking", {}, _ACTIVATION),
    text_only=False,
    input_problem=pairs,
    # The pairs of an item are rows of their own in whatever launch they are.
    unit="characters",
    size=pair_characters,
    buckets=_CHARACTER_BUCKETS,
    longest=lambda options: _CHARACTER_BUCKETS[-1],
    pads=False,
)
_HUGGINGFACE = {
    "classification": _huggingface("classification", _CUT | _TOP_K, {}),
    "tokens": _huggingface("tokens", _CUT, {}),
    "embedding": _huggingface("embedding", _CUT | _NORMALIZE, _POOLING | _NORMALIZE),
    "reranking": _RERANKING,
}
HUGGINGFACE = replace(_huggingface("any", {}, {}), by_task=_HUGGINGFACE)
"""Of itself it does nothing: an entry says what."""
