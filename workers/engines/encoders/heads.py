"""Heads of Hugging Face models: from the results of their networks to outputs."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch.nn.functional as F  # noqa: N812
from numpy.typing import NDArray
from torch import Tensor

from jobs.models.engines import huggingface_folder
from workers.engines.common.device import Send
from workers.engines.encoders.folder_networks import FolderNetwork
from workers.engines.encoders.tokenize_pairs import Row
from workers.engines.protocol import Params

Floats = NDArray[np.float32]

_POOLINGS = {
    "mean_tokens": "mean",
    "cls_token": "cls",
    "lasttoken": "last",
    "mean": "mean",
    "cls": "cls",
}
"""Poolings by their names in files of sentence-transformers."""


class Head(Protocol):
    """Task of a model."""

    auto: str  #: class of transformers that loads such a model
    optional: tuple[str, ...] = ()  #: prefixes of parameters that it may lack

    def run(
        self, network: FolderNetwork, rows: Sequence[Row], params: Params, send: Send
    ) -> Tensor:
        """Runs the network. Returns float32 [rows, …], or [tokens of all rows, …]."""
        ...

    def outputs(self, rows: Sequence[Row], values: Floats, params: Params) -> Sequence[Any]:
        """Returns one output a row, from the values of `run`."""
        return list(values)


class Classification(Head):
    """Outputs [{"label", "score"}, …], the best first. Scores sum up to one, except with several
    labels for a text or a single one."""

    auto = "AutoModelForSequenceClassification"

    def __init__(self, config: Any) -> None:
        self._labels = _labels(config)
        several = getattr(config, "problem_type", None) == "multi_label_classification"
        self._alone = several or len(self._labels) == 1

    def run(
        self, network: FolderNetwork, rows: Sequence[Row], params: Params, send: Send
    ) -> Tensor:
        """Returns scores [rows, labels]."""
        logits = network.row_logits(rows, send)
        return logits.sigmoid() if self._alone else logits.softmax(-1)

    def outputs(self, rows: Sequence[Row], values: Floats, params: Params) -> Sequence[Any]:
        """Returns one output a row."""
        return ranked(self._labels, values, params.get("top_k"))


class TokenLabels(Head):
    """Outputs [{"label", "score", "start", "end", "text"}, …]: spans of tokens with one label, by
    their B- and I- tags, without "O". Start and end count characters; the score is the mean over
    the tokens."""

    auto = "AutoModelForTokenClassification"

    def __init__(self, config: Any) -> None:
        self._labels = _labels(config)

    def run(
        self, network: FolderNetwork, rows: Sequence[Row], params: Params, send: Send
    ) -> Tensor:
        """Returns probabilities [tokens of all rows, labels]."""
        return network.token_logits(rows, send).softmax(-1)

    def outputs(self, rows: Sequence[Row], values: Floats, params: Params) -> Sequence[Any]:
        """Returns one output a row."""
        ends = np.cumsum([len(row) for row in rows])
        by_row = np.split(values, ends[:-1])
        return [list(self._spans(*pair)) for pair in zip(rows, by_row, strict=True)]

    def _spans(self, row: Row, values: Floats) -> Iterator[dict[str, Any]]:
        assert row.places is not None
        assert row.special is not None
        tokens = np.flatnonzero(~row.special)
        best = values[tokens].argmax(1)
        scores = values[tokens, best]
        tags = [_tag(self._labels[n]) for n in best]
        for since, until in pairwise(_edges(tags)):
            label = tags[since][1]
            if label == "O":
                continue
            start, end = row.places[tokens[since]][0], row.places[tokens[until - 1]][1]
            yield {
                "label": label,
                "score": float(scores[since:until].mean()),
                "start": int(start),
                "end": int(end),
                "text": row.text[start:end],
            }


class Embedding(Head):
    """Outputs a vector a text: the mean over its tokens, or its first ("cls") or last token's, of
    unit length unless `normalize` is False."""

    auto = "AutoModel"
    optional = ("pooler.",)

    def __init__(self, folder: Path, pooling: str, normalize: bool) -> None:
        self._pooling, self._normalize = pooling or _pooling(folder), normalize

    def run(
        self, network: FolderNetwork, rows: Sequence[Row], params: Params, send: Send
    ) -> Tensor:
        """Returns vectors [rows, hidden]."""
        vectors = network.pooled(rows, self._pooling, send)
        return F.normalize(vectors) if params.get("normalize", self._normalize) else vectors


class Reranking(Head):
    """Outputs a score a pair, between 0 and 1 unless the activation is "none"."""

    auto = "AutoModelForSequenceClassification"

    def __init__(self, config: Any, activation: str) -> None:
        if problem := huggingface_folder.misfit("reranking", {"id2label": config.id2label}):
            raise ValueError(problem)
        self._sigmoid = (activation or _activation(config)) == "sigmoid"

    def run(
        self, network: FolderNetwork, rows: Sequence[Row], params: Params, send: Send
    ) -> Tensor:
        """Returns scores [rows]."""
        logits = network.row_logits(rows, send)[:, 0]
        return logits.sigmoid() if self._sigmoid else logits

    def outputs(self, rows: Sequence[Row], values: Floats, params: Params) -> Sequence[Any]:
        """Returns one output a row."""
        scores: list[float] = values.tolist()
        return scores


def ranked(labels: Sequence[str], values: Floats, most: int | None) -> Sequence[Any]:
    """Returns [{"label", "score"}, …] for each row of scores [rows, labels], the best first, so
    many at most; None: all."""
    best = np.argsort(-values, axis=1, kind="stable")[:, :most]
    return [
        [{"label": labels[n], "score": float(scores[n])} for n in order]
        for scores, order in zip(values, best, strict=True)
    ]


def _labels(config: Any) -> list[str]:
    return [str(config.id2label[n]) for n in range(config.num_labels)]


def _tag(label: str) -> tuple[bool, str]:
    """Returns (True if a span begins there, its label)."""
    return label.startswith("B-"), label[2:] if label[:2] in ("B-", "I-") else label


def _edges(tags: Sequence[tuple[bool, str]]) -> list[int]:
    """Returns the starts of spans, and the end of the last one."""
    edges = [n for n, (begins, tag) in enumerate(tags) if n == 0 or begins or tag != tags[n - 1][1]]
    return [*edges, len(tags)] if tags else []


def _pooling(folder: Path) -> str:
    """Reads the pooling from the file of sentence-transformers; "mean" without one."""
    config = huggingface_folder.read(folder / "1_Pooling", "config.json")
    flags = [key for key, on in config.items() if on is True and key.startswith("pooling_mode_")]
    wanted = [flag.removeprefix("pooling_mode_") for flag in flags]
    if mode := config.get("pooling_mode"):
        wanted = list(mode) if isinstance(mode, list | tuple) else [mode]
    if not wanted:
        return "mean"
    known = [_POOLINGS.get(name, "") for name in wanted]
    if len(known) != 1 or not known[0]:
        words = ", ".join(wanted)
        raise ValueError(f"{folder}/1_Pooling pools by {words}; mean, cls and lasttoken are known")
    return known[0]


def _activation(config: Any) -> str:
    """Reads the activation that sentence-transformers writes into config.json."""
    saved = getattr(config, "sentence_transformers", None)
    name = str(saved.get("activation_fn", "")) if isinstance(saved, Mapping) else ""
    return "none" if name.endswith("Identity") else "sigmoid"
