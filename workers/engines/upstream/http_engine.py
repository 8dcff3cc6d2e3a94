"""Engine `http`: a model behind an HTTP API that takes one input a request."""

from collections.abc import Sequence
from typing import Any

import orjson

from jobs.models.engines.upstream_options import INPUT, PARAMS, HttpOptions
from jobs.models.model import Model
from workers.engines.protocol import Params, Permanent, Prepared, PreparedInputs
from workers.engines.upstream.requester import Requester, UpstreamEngine


class HttpEngine(UpstreamEngine):
    """Sends inputs as HTTP requests; options: `upstream_options.HttpOptions`."""

    def __init__(self, model: Model) -> None:
        self._model, self._options = model, HttpOptions(**model.options)
        self._upstream = Requester(model, self._options)

    def prepare(self, inputs: Sequence[Any], params: Params) -> PreparedInputs:
        """Prepares inputs, as `Engine.prepare`."""
        template, size = self._options.body, self._model.size
        return [
            Prepared(size(value, params), orjson.dumps(_filled(template, value, params)))
            for value in inputs
        ]

    def run(self, batch: Sequence[bytes], params: Params) -> list[Any]:
        """Runs a launch, as `Engine.run`."""
        return [self._run(body) for body in batch]

    def _run(self, body: bytes) -> Any:
        answer = self._upstream.ask(self._options.method, self._options.url, body)
        if isinstance(answer, Exception):
            return answer
        try:
            return _at(answer, self._options.output)
        except (LookupError, ValueError):
            return Permanent(f"upstream's answer has nothing at {self._options.output}")


def _filled(template: Any, value: Any, params: Params) -> Any:
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
    """Resolves a JSON pointer (RFC 6901). Raises LookupError or ValueError if nothing is there."""
    for token in pointer.split("/")[1:]:
        key = token.replace("~1", "/").replace("~0", "~")
        if isinstance(document, dict):
            document = document[key]
        elif isinstance(document, list) and (key == "0" or (key.isdecimal() and key[0] != "0")):
            document = document[int(key)]
        else:
            raise LookupError(key)
    return document
