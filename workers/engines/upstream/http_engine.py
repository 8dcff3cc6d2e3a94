"""`http`: a model behind an HTTP API that takes one input a request, and can't be changed."""

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from jobs.models.engines.upstream_options import INPUT, PARAMS, HttpOptions
from jobs.models.model import Model
from workers.engines.protocol import InvalidInput, Permanent, Prepared, Room
from workers.engines.upstream.requester import Requester


class HttpEngine:
    """Prepares inputs as bodies of HTTP requests. Options: see
    `jobs.models.engines.upstream_options.HttpOptions`."""

    def __init__(self, model: Model) -> None:
        self._model, self._options = model, HttpOptions(**model.options)
        self._upstream = Requester(model, self._options)

    def prepare(
        self, inputs: Sequence[Any], params: Mapping[str, Any]
    ) -> list[Prepared | InvalidInput]:
        return [self._prepare(value, params) for value in inputs]

    def _prepare(self, value: Any, params: Mapping[str, Any]) -> Prepared:
        body = orjson.dumps(_filled(self._options.body, value, params))
        return Prepared(self._model.size(value, params), body)

    def run(self, batch: Sequence[bytes], params: Mapping[str, Any]) -> list[Any]:
        return [self._run(body) for body in batch]

    def _run(self, body: bytes) -> Any:
        answer = self._upstream.ask(self._options.method, self._options.url, body)
        if isinstance(answer, Exception):
            return answer
        try:
            return _at(answer, self._options.output)
        except (LookupError, ValueError):
            return Permanent(f"upstream's answer has nothing at {self._options.output}")

    def room(self) -> Room:
        return self._upstream.room()

    def samples(self) -> Sequence[Any]:
        """None: its first requests are somebody's."""
        return ()

    def memory_mb(self) -> float:
        return 0.0

    def close(self) -> None:
        self._upstream.close()


def _filled(template: Any, value: Any, params: Mapping[str, Any]) -> Any:
    if template == INPUT:
        return value
    if template == PARAMS:
        return params
    if isinstance(template, dict):
        return {key: _filled(inner, value, params) for key, inner in template.items()}
    if isinstance(template, list):
        return [_filled(inner, value, params) for inner in template]
    return template


def _at(document: Any, pointer: str) -> Any:
    """What a JSON pointer leads to (RFC 6901). Raises LookupError or ValueError where it leads to
    nothing."""
    for token in pointer.split("/")[1:]:
        key = token.replace("~1", "/").replace("~0", "~")
        if isinstance(document, dict):
            document = document[key]
        elif isinstance(document, list) and (key == "0" or (key.isdecimal() and key[0] != "0")):
            document = document[int(key)]
        else:
            raise LookupError(key)
    return document
