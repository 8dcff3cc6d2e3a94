"""Tokenizer of an upstream, at the routes that vLLM and Millrace have beside `/v1`: `/tokenize` and
`/detokenize`."""

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from jobs.models.engines.upstream_options import OpenAIOptions
from jobs.models.inputs.generation import GenerationRequest
from jobs.models.model import Model
from workers.engines.generator import Tokenized
from workers.engines.protocol import InvalidInput, Permanent
from workers.engines.upstream.streaming.chat_stream import conversation_of
from workers.engines.upstream.streaming.stream_requester import StreamRequester


class ServerTokenizer:
    """Asks the server of a model. Methods raise InvalidInput where it has no such routes, and what
    `StreamRequester.open` raises."""

    def __init__(self, model: Model, options: OpenAIOptions, requester: StreamRequester) -> None:
        self._key, self._name, self._requester = model.key, options.model, requester
        self._base = options.url.rstrip("/").removesuffix("/v1")

    def tokenize(self, request: GenerationRequest) -> Tokenized:
        """Returns the tokens of a prompt."""
        if request.messages is None:
            body: dict[str, Any] = {"prompt": request.prompt}
            if request.rendering.add_special_tokens is False:
                body["add_special_tokens"] = False
        else:
            body = conversation_of(request)
        found = self._ask("/tokenize", {**body, "return_token_strs": True})
        tokens, most = found.get("tokens"), found.get("max_model_len")
        if not isinstance(tokens, list) or {*map(type, tokens)} - {int}:
            raise self._unserved("/tokenize", "its answer has no tokens")
        if found.get("count") != len(tokens):  # of a server that read another field than `prompt`
            raise self._unserved("/tokenize", "its answer has no count of tokens")
        texts = found.get("token_strs")
        told = texts if isinstance(texts, list) and len(texts) == len(tokens) else ()
        return Tokenized(tokens, told, most if type(most) is int else 0)

    def detokenize(self, tokens: Sequence[int]) -> str:
        """Returns the text of tokens."""
        text = self._ask("/detokenize", {"tokens": tokens}).get("prompt")
        if not isinstance(text, str):
            raise self._unserved("/detokenize", "its answer has no prompt")
        return text

    def _ask(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        raw = orjson.dumps({"model": self._name, **body})
        try:
            found = self._requester.ask(self._base + path, raw)
        except Permanent as error:
            raise self._unserved(path, str(error)) from error
        if not isinstance(found, dict):
            raise self._unserved(path, "its answer is no object")
        return found

    def _unserved(self, path: str, why: str) -> InvalidInput:
        return InvalidInput(f"the server of {self._key} has no {path} as vLLM's: {why}")
