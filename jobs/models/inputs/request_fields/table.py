"""The table of request fields, and the check of a request by it.

A field that no row has is refused by name, and so is a value that asks for what isn't served; null
stands for an absent field. Types and ranges of an input's fields are checked where they are read.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import orjson

from jobs.models.inputs.fields import FieldError
from jobs.models.inputs.request_fields import anthropic_rows, openai_rows, vllm_rows
from jobs.models.inputs.request_fields.row import ROUTES, Route, Row, Use

ROWS: tuple[Row, ...] = (*openai_rows.ROWS, *vllm_rows.ROWS, *anthropic_rows.ROWS)
TITLES: Mapping[Route, str] = {
    "chat": "chat completions",
    "completions": "completions",
    "responses": "responses",
    "messages": "messages",
    "embeddings": "embeddings",
    "tokenize": "tokenization",
    "detokenize": "detokenization",
}

_SHOWN = 100  # characters of a client's text in an error
_BY_PATH = {route: {row.name: row for row in ROWS if route in row.routes} for route in ROUTES}
_INNER = ".", "[]."  # after the name of an object, or of a list of objects
_PARENTS = {
    route: frozenset(
        path[:end] for path in paths for mark in _INNER if (end := path.rfind(mark)) > 0
    )
    for route, paths in _BY_PATH.items()
}
_PLAIN = {
    route: frozenset(
        path for path, row in paths.items() if row.use == "input" and path not in _PARENTS[route]
    )
    for route, paths in _BY_PATH.items()
}
"""Fields whose readers check them whole: by far the most that requests have."""


def names(route: Route, use: Use) -> frozenset[str]:
    """Returns the names of a route's fields of one use."""
    rows = _BY_PATH[route].values()
    return frozenset(row.name for row in rows if row.use == use and "." not in row.name)


def shared(one: Route, other: Route) -> frozenset[str]:
    """Returns the names of fields of inputs that mean the same on two routes."""
    rows = _BY_PATH[one].values()
    return frozenset(
        row.name
        for row in rows
        if row.use == "input" and other in row.routes and "." not in row.name
    )


def check(route: Route, values: Mapping[str, Any], *, of_call: bool = False) -> None:
    """Raises FieldError for the first field of a request that can't be taken. of_call: fields of
    the call may be among them."""
    if values.keys() <= _PLAIN[route]:
        return
    for problem in problems(route, values, of_call=of_call):
        raise problem


def problems(
    route: Route, values: Mapping[str, Any], *, of_call: bool = False
) -> Iterator[FieldError]:
    """Yields what is wrong with the fields of a request."""
    return _problems(route, values, "", "", of_call)


def _problems(
    route: Route, values: Mapping[str, Any], path: str, place: str, of_call: bool
) -> Iterator[FieldError]:
    """path: of the rows of these fields; place: of the fields in the request."""
    plain, rows = _PLAIN[route], _BY_PATH[route]
    for name, value in values.items():
        known = path + name
        if value is None or known in plain:
            continue
        here, row = (place + name)[:_SHOWN], rows.get(known)
        message = _refusal(row, value, of_call) if row else _unknown(route, known)
        if message:
            yield FieldError(here, message)
        elif known in _PARENTS[route]:
            yield from _inside(route, value, known, here, of_call)


def _inside(route: Route, value: Any, path: str, place: str, of_call: bool) -> Iterator[FieldError]:
    if isinstance(value, dict):
        yield from _problems(route, value, f"{path}.", f"{place}.", of_call)
    elif isinstance(value, list):
        for n, one in enumerate(value):
            if isinstance(one, dict):
                yield from _problems(route, one, f"{path}[].", f"{place}[{n}].", of_call)


def _unknown(route: Route, path: str) -> str:
    elsewhere = any(path in paths for paths in _BY_PATH.values())
    known = "isn't a field" if elsewhere else "isn't supported as a field"
    return f"{known} of {TITLES[route]}: leave it out"


def _refusal(row: Row, value: Any, of_call: bool) -> str:
    """Returns why a value is refused; "": it is not."""
    if row.use == "input" or (row.use == "call" and of_call) or row.is_neutral(value):
        return ""
    if row.use == "call":
        return "isn't part of an input: leave it out"
    if row.use == "label":
        return "" if row.fits(value) else f"must be of the type: {row.kind}"
    if not row.neutral:
        return "isn't supported: leave it out"
    neutral = orjson.dumps(row.neutral[0]).decode()
    return f"isn't supported with this value: leave it out, or send {neutral}"
