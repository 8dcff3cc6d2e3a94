"""Engine `huggingface`: a folder saved by Hugging Face's libraries, for classification, token
labels, embeddings and reranking.

Only the folder is read: no code in it runs, no pickle, no network.
"""

import os
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import nn

from jobs.artifacts import declared as artifacts
from jobs.models.engines import huggingface_folder
from jobs.models.engines.custom_engines import pair_characters, pairs
from jobs.models.inputs.input_size import OnTooLong
from workers.engines.common import device as devices
from workers.engines.encoders import layouts
from workers.engines.encoders.folder_networks import (
    FolderNetwork,
    PackedNetwork,
    PaddedNetwork,
    has_bias,
)
from workers.engines.encoders.heads import Classification, Embedding, Head, Reranking, TokenLabels
from workers.engines.encoders.tokenize import sample_tokens
from workers.engines.encoders.tokenize_pairs import Row, Tokens
from workers.engines.protocol import Engine, InvalidInput, Params, Prepared, PreparedInputs

os.environ.setdefault("HF_HUB_OFFLINE", "1")
import transformers

_ONLY_THE_FOLDER = {"local_files_only": True, "trust_remote_code": False}
_PAIR_TOKENS = 16_384  # tokens of a forward pass over pairs, were they padded
_SAMPLE_DOCUMENTS = (1, 8)


class HuggingFace(Engine):
    """Model of one folder.

    `task` is what it does; `sha256` that of its model.safetensors, `config_sha256` and
    `tokenizer_sha256` those of its config.json and tokenizer.json; `max_tokens` is a limit
    of texts below the model's own; `on_too_long` says what becomes of longer ones: "fail", or
    "truncate". `dtype` is that of its weights; "auto" is bfloat16 on GPUs that
    compute it, and float32 elsewhere. `layout` is "packed", texts end to end, or "padded"; "" is
    packed where the architecture allows it. `pooling` and `normalize` (embeddings) and `activation`
    (reranking) override what the folder says. Raises ValueError where options or folder don't fit,
    Untrusted where a file isn't the declared one.
    """

    def __init__(
        self,
        *,
        task: str,
        path: str,
        sha256: str = "",
        config_sha256: str = "",
        tokenizer_sha256: str = "",
        max_tokens: int = huggingface_folder.MOST_TOKENS,
        on_too_long: OnTooLong = "fail",
        dtype: str = devices.AUTO,
        layout: str = "",
        pooling: str = "",
        normalize: bool = True,
        activation: str = "",
        device: str | None = None,
        threads: int | None = None,
    ) -> None:
        folder = Path(path)
        options = {"path": path, "max_tokens": max_tokens}
        if wrong := list(huggingface_folder.file_problems(task, path, layout)):
            raise ValueError("; ".join(wrong))
        artifacts.weights(folder / huggingface_folder.WEIGHTS, sha256)
        artifacts.declared(folder / huggingface_folder.CONFIG, config_sha256, "config_sha256")
        artifacts.declared(
            folder / huggingface_folder.TOKENIZER, tokenizer_sha256, "tokenizer_sha256"
        )
        if threads is not None:
            torch.set_num_threads(threads)
        config = transformers.AutoConfig.from_pretrained(folder, **_ONLY_THE_FOLDER)
        self._head = _head(task, folder, config, pooling, normalize, activation)
        self._most = huggingface_folder.longest(options)
        self._tokens = Tokens(folder, self._most, on_too_long, places=task == "tokens")
        self._pairs = task == "reranking"
        self._device = devices.choose(device)
        place = self._device.place
        numbers = devices.dtype(dtype, place)
        loaded = _loaded(folder, self._head, numbers, place)
        self._memory_mb = devices.weights_mb(loaded)
        if layout == "padded" or not huggingface_folder.packs(config.model_type):
            self._network: FolderNetwork = PaddedNetwork(loaded, config)
        else:
            head_size = getattr(config, "head_dim", None) or (
                config.hidden_size // config.num_attention_heads
            )
            create = layouts.choose("packed", place, numbers, head_size, biased=has_bias(config))
            self._network = PackedNetwork(loaded, config, create)
        self._device.release()

    def prepare(self, inputs: Sequence[Any], params: Params) -> PreparedInputs:
        """Prepares rows: one for a text, one for each document of a query."""
        if self._pairs:
            return [self._prepare_pairs(value) for value in inputs]
        made = self._tokens.texts(inputs, params.get("truncate"))
        return [row if isinstance(row, InvalidInput) else _prepared(row) for row in made]

    def run(self, batch: Sequence[Sequence[Row]], params: Params) -> Sequence[Any]:
        """Runs the rows of each item; returns an output for each item."""
        rows = [row for item in batch for row in item]
        outputs: dict[int, Any] = {}
        for indexes in self._passes(rows):
            some = [rows[index] for index in indexes]
            values = self._device.run(partial(self._head.run, self._network, some, params))
            outputs |= zip(indexes, self._head.outputs(some, values, params), strict=True)
        ordered = [outputs[index] for index in range(len(rows))]
        if not self._pairs:
            return ordered
        left = iter(ordered)
        return [list(islice(left, len(item))) for item in batch]

    def samples(self) -> Sequence[Any]:
        """Returns texts over the range of lengths, or queries with few and with more documents."""
        if self._pairs:
            [text] = self._tokens.samples([self._most // 4])
            return [{"query": "word", "documents": [text] * n} for n in _SAMPLE_DOCUMENTS]
        return self._tokens.samples(sample_tokens(self._most))

    def memory_mb(self) -> float:
        """Returns the size of the weights, MiB."""
        return self._memory_mb

    def close(self) -> None:
        """Frees the weights."""
        del self._network
        self._device.release()

    def _prepare_pairs(self, value: Any) -> Prepared | InvalidInput:
        if problem := pairs(value):
            return InvalidInput(f"the model {problem}")
        rows = self._tokens.pairs(value["query"], value["documents"])
        if isinstance(rows, InvalidInput):
            return rows
        if not all(map(len, rows)):
            return InvalidInput("the query and a document hold no token")
        truncated = sum(row.truncated for row in rows)
        return Prepared(pair_characters(value), rows, truncated)

    def _passes(self, rows: Sequence[Row]) -> Iterator[list[int]]:
        """Yields the indexes of the rows of each forward pass. Pairs come in any number and length:
        those of similar length share a pass, up to a bound."""
        if not self._pairs:
            yield list(range(len(rows)))
            return
        some: list[int] = []
        for index in sorted(range(len(rows)), key=lambda index: len(rows[index])):
            if some and (len(some) + 1) * len(rows[index]) > _PAIR_TOKENS:
                yield some
                some = []
            some.append(index)
        if some:
            yield some


def _prepared(row: Row) -> Prepared | InvalidInput:
    """Prepares a row; one of a tokenizer without special tokens may be empty."""
    if not len(row):
        return InvalidInput("the text holds no token")
    return Prepared(len(row), [row], row.truncated)


def _head(
    task: str, folder: Path, config: Any, pooling: str, normalize: bool, activation: str
) -> Head:
    if task == "classification":
        return Classification(config)
    if task == "tokens":
        return TokenLabels(config)
    if task == "embedding":
        return Embedding(folder, pooling, normalize)
    return Reranking(config, activation)


def _loaded(folder: Path, head: Head, dtype: torch.dtype, place: torch.device) -> nn.Module:
    """Loads the network. Raises ValueError where the folder lacks weights, which transformers would
    initialize at random."""
    transformers.utils.logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    transformers.utils.logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    network, loaded = getattr(transformers, head.auto).from_pretrained(
        folder,
        use_safetensors=True,
        dtype=dtype,
        output_loading_info=True,
        **_ONLY_THE_FOLDER,
    )
    network.config.use_cache = False  # of keys and values, for tokens that never come
    missing = sorted({*loaded["missing_keys"], *map(str, loaded["mismatched_keys"])})
    if missing := [name for name in missing if not name.startswith(head.optional)]:
        raise ValueError(f"{folder} has no weights for {', '.join(missing)}")
    module: nn.Module = network.to(place).eval()
    return module
