"""Requests of the streams under test, and what each generates undisturbed."""

from collections.abc import Sequence
from typing import Any

import orjson

from ops.bench.load.streams.reader import StreamRequest
from ops.bench.streams.target import ADAPTERS, NAME

SCHEMA = "schema"
"""Kind of requests whose text is JSON."""

_WORDS = ("red", "green", "blue", "a colour that has a long name of its own")
_ITEM_TOKENS = 40  # of one word, with blanks around it
_MOST_TOKENS = 1500  # which no text of the schema needs

NAMES = (NAME, *(f"{NAME}:{adapter}" for adapter in ADAPTERS))
"""The model and its adapters."""


def requests(count: int, tokens: int, models: Sequence[str] = (NAME,)) -> list[StreamRequest]:
    """Returns requests of all kinds in turn: greedy, seeded, of two choices, bound to a schema;
    each four of another model."""
    makers = (_greedy, _seeded, _two, _schema)
    return [
        makers[n % len(makers)](n, tokens, models[n // len(makers) % len(models)])
        for n in range(count)
    ]


def stream_request(kind: str, model: str, number: int, **fields: Any) -> StreamRequest:
    """Returns a request with a prompt of its own. fields: of its input."""
    prompt = f"stream {number} says its own words, {number * 7919} of them"
    body = {"model": model, "input": {"prompt": prompt, **fields}, "stream": True}
    return StreamRequest(kind, {**body, "first_token_ms": 300_000, "idle_ms": 120_000})


def is_valid(request: StreamRequest, text: str) -> bool:
    """Returns True for JSON of the schema that a request is bound to."""
    wanted = request.body["input"]["response_format"]["json_schema"]["schema"]
    try:
        found = orjson.loads(text)
    except orjson.JSONDecodeError:
        return False
    return len(found) == wanted["minItems"] and set(found) <= set(_WORDS)


def _greedy(n: int, tokens: int, model: str) -> StreamRequest:
    limits = {"max_tokens": tokens, "min_tokens": tokens}
    return stream_request("greedy", model, n, temperature=0, **limits)


def _seeded(n: int, tokens: int, model: str) -> StreamRequest:
    limits = {"max_tokens": tokens, "min_tokens": tokens}
    return stream_request("seeded", model, n, temperature=0.9, top_p=0.95, seed=n, **limits)


def _two(n: int, tokens: int, model: str) -> StreamRequest:
    half = max(1, tokens // 2)
    limits = {"max_tokens": half, "min_tokens": half, "n": 2}
    return stream_request("two choices", model, n, temperature=1.2, seed=n, **limits)


def _schema(n: int, tokens: int, model: str) -> StreamRequest:
    count = max(1, tokens // _ITEM_TOKENS)
    words = {"type": "array", "items": {"enum": _WORDS}, "minItems": count, "maxItems": count}
    wanted = {"name": "words", "schema": words, "strict": True}
    form = {"type": "json_schema", "json_schema": wanted}
    sampling = {"temperature": 1, "seed": n, "max_tokens": _MOST_TOKENS}
    return stream_request(SCHEMA, model, n, response_format=form, **sampling)
