"""Engine `openai`: a model on an OpenAI-compatible server: vLLM, SGLang, TEI, or OpenAI itself.

A conversation is a request. Texts to embed share one: a launch is a request to the batch endpoint.
"""

from base64 import b64decode
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import orjson

from jobs.models.adapters import Adapter
from jobs.models.engines.upstream_options import OpenAIOptions
from jobs.models.inputs import chat
from jobs.models.model import Model
from workers.engines.adapters.slots import Slots
from workers.engines.protocol import (
    Adapted,
    InvalidInput,
    Metered,
    Params,
    Permanent,
    Prepared,
    PreparedInputs,
)
from workers.engines.upstream.requester import Requester, UpstreamEngine

_MAX_TOKENS = 2**31 - 1  # a larger count isn't believed
_WANTED = "takes a string, or a list of token ids that is not empty"


class OpenAIEngine(UpstreamEngine):
    """Sends conversations or texts to embed; options: `upstream_options.OpenAIOptions`."""

    def __init__(self, model: Model) -> None:
        self._model, self._options = model, OpenAIOptions(**model.options)
        key = self._options.api_key
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._upstream = Requester(model, self._options, headers)
        self._base = self._options.url.rstrip("/")

    def prepare(self, inputs: Sequence[Any], params: Params) -> PreparedInputs:
        """Prepares inputs, as `Engine.prepare`."""
        why_not = chat.refuse if self._model.effective_task == "chat" else _refuse_embedding
        return [
            InvalidInput(f"the model {problem}")
            if (problem := why_not(value))
            else Prepared(self._model.size(value, params), value)
            for value in inputs
        ]

    def run(self, batch: Sequence[Any], params: Params) -> Sequence[Any]:
        """Runs a launch, as `Engine.run`: an adapter is the upstream's model of that name."""
        if self._model.effective_task == "chat":
            return [self._answer(*self._named(one)) for one in batch]
        outputs: list[Any] = [None] * len(batch)
        by_name: dict[str, list[tuple[int, Any]]] = {}
        for n, one in enumerate(batch):
            name, value = self._named(one)
            by_name.setdefault(name, []).append((n, value))
        for name, its in by_name.items():
            found = self._embed(name, [value for _, value in its], params)
            for (n, _), output in zip(its, found, strict=True):
                outputs[n] = output
        return outputs

    @property
    def held_adapters(self) -> Slots:
        """Implements `AdaptingEngine.held_adapters`: none."""
        return Slots(0)

    def loaded_adapter(self, adapter: Adapter) -> str:
        """Implements `AdaptingEngine.loaded_adapter`: the upstream loads what it is asked for."""
        return adapter.name

    def load_adapter(self, adapter: Adapter) -> str:
        """Implements `AdaptingEngine.load_adapter`."""
        return adapter.name

    def _named(self, value: Any) -> tuple[str, Any]:
        """Returns the upstream's model for an input, and the input."""
        if isinstance(value, Adapted):
            return value.adapter, value.data
        return self._options.model, value

    def _answer(self, name: str, conversation: Mapping[str, Any]) -> Any:
        """Returns the completion as the upstream gave it."""
        body = {**conversation, "model": name, "stream": False}
        answer = self._ask("/chat/completions", body)
        if isinstance(answer, Exception):
            return answer
        if not (isinstance(answer, dict) and isinstance(answer.get("choices"), list)):
            return Permanent("upstream's answer is no chat completion: it has no list of choices")
        used = chat.usage_of(answer)
        tokens = used.input + used.output if used else _tokens(answer)
        return Metered(answer, tokens) if tokens else answer

    def _embed(self, name: str, batch: Sequence[Any], params: Params) -> Sequence[Any]:
        """Returns a vector each. Raises InvalidInput if one of several inputs may be the cause."""
        body = {
            "model": name,
            "input": list(batch),
            "encoding_format": self._options.encoding_format,
            **params,
        }
        # An error may quote one of several inputs, which may be another tenant's.
        answer = self._ask("/embeddings", body, quoting=len(batch) == 1)
        if isinstance(answer, InvalidInput):
            raise answer
        if isinstance(answer, Exception):
            return [answer] * len(batch)
        try:
            vectors = _vectors(answer, len(batch))
        except (LookupError, TypeError, ValueError, OverflowError):
            wrong = Permanent("upstream's answer is no list of one embedding for each input")
            return [wrong] * len(batch)
        return _metered(vectors, _tokens(answer), batch)

    def _ask(self, path: str, body: Mapping[str, Any], *, quoting: bool = True) -> Any:
        raw = orjson.dumps(body)
        return self._upstream.ask("POST", self._base + path, raw, quoting=quoting)


def _refuse_embedding(value: Any) -> str | None:
    ids = isinstance(value, list) and value and all(type(token) is int for token in value)
    return None if isinstance(value, str) or ids else _WANTED


def _vectors(answer: Any, count: int) -> list[Any]:
    """Returns the vectors by index. Raises LookupError, TypeError, ValueError or OverflowError
    where the answer has another form."""
    by_index = {one["index"]: one["embedding"] for one in answer["data"]}
    if len(by_index) != count or len(answer["data"]) != count:
        raise ValueError
    return [_vector(by_index[n]) for n in range(count)]


def _vector(embedding: Any) -> Any:
    """Converts a list of numbers, or little-endian float32 as base64: servers give either."""
    if isinstance(embedding, str):
        return np.frombuffer(b64decode(embedding, validate=True), "<f4")
    vector = np.array(embedding, np.float32)
    if vector.ndim != 1:
        raise ValueError
    return vector


def _tokens(answer: Any) -> int:
    """Returns the tokens that the upstream counted; 0 where it didn't."""
    usage = answer.get("usage") if isinstance(answer, dict) else None
    total = usage.get("total_tokens") if isinstance(usage, dict) else None
    return min(total, _MAX_TOKENS) if type(total) is int and total > 0 else 0


def _metered(vectors: Sequence[Any], tokens: int, batch: Sequence[Any]) -> Sequence[Any]:
    """Distributes the tokens of a request over its inputs by length, with the same sum where there
    are enough."""
    if not tokens:
        return vectors
    lengths = [max(1, len(value)) for value in batch]
    whole, before, metered = sum(lengths), 0, list[Metered]()
    for vector, length in zip(vectors, lengths, strict=True):
        share = tokens * (before + length) // whole - tokens * before // whole
        metered.append(Metered(vector, max(1, share)))
        before += length
    return metered
