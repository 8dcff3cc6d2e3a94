"""Options of the engines `http` and `openai`, whose models another server runs."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import BeforeValidator, ConfigDict, Field

from jobs.models.engines.engine_spec import EngineOptions, Task
from jobs.models.tables import fits, whole

INPUT, PARAMS = "$input", "$params"
"""Placeholders in a template: the input and the parameters take their place."""

_SECRET = re.compile(r"(?:\S+ )?(?:env:[A-Za-z_][A-Za-z0-9_]*|file:/\S+)")
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_HEADER_VALUE = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?")
_HEADER_OF_SECRETS = re.compile(r"auth|cookie|key|token|secret|password", re.IGNORECASE)
_OURS = ("host", "content-length", "content-type", "transfer-encoding", "connection", "accept")
_PATH = re.compile(r"(?:/[!-~]*)?")
_POINTER = re.compile(r"(?:/(?:[^~/]|~[01])*)*")
_ODD = re.compile(r"[^!-~]")
_MOST_AT_ONCE = 1000  # requests in flight
_IN_FLIGHT_SLICES = 100  # items a slice: about one to two seconds of an upstream's work


@dataclass(frozen=True, slots=True)
class Concurrency:
    """Requests in flight from one worker: bounds of an adaptive limit."""

    min: int = 1
    start: int = 4
    max: int = 32


@dataclass(frozen=True, slots=True)
class BreakerOptions:
    """Circuit breaker of one upstream."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    failures: Annotated[int, whole(1, 1000)] = 5  #: failures in a row that open it
    open_s: Annotated[float, Field(strict=True, ge=0.1, le=3600)] = (
        10.0  #: seconds without requests
    )


def _concurrency(given: Any) -> Concurrency:
    """Reads a table; a part that is missing is the nearest to its default that fits the others."""
    if not isinstance(given, dict) or not given.keys() <= {"min", "start", "max"}:
        raise ValueError
    if not all(type(n) is int and 1 <= n <= _MOST_AT_ONCE for n in given.values()):
        raise ValueError
    usual = Concurrency()
    least = given.get("min", min(usual.min, given.get("max", usual.max)))
    most = given.get("max", max(usual.max, least, given.get("start", 1)))
    start = given.get("start", min(max(usual.start, least), most))
    if not least <= start <= most:
        raise ValueError
    return Concurrency(least, start, most)


def _is_address(value: str) -> bool:
    if _ODD.search(value):
        return False
    try:
        parts = urlsplit(value)
        named = bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
    return named and parts.scheme in ("http", "https") and not ("@" in parts.netloc or "#" in value)


def _is_header(name: str, value: str) -> bool:
    if not _HEADER_NAME.fullmatch(name) or name.lower() in _OURS:
        return False
    secret = _HEADER_OF_SECRETS.search(name)
    return bool(_SECRET.fullmatch(value) or (not secret and _HEADER_VALUE.fullmatch(value)))


def _mentions(template: Any, word: str) -> bool:
    if isinstance(template, dict):
        return any(_mentions(inner, word) for inner in template.values())
    if isinstance(template, list):
        return any(_mentions(inner, word) for inner in template)
    return bool(template == word)


def passes_params(options: Mapping[str, Any]) -> bool:
    """Returns True if the template of an `http` model has a place for parameters."""
    return _mentions(options.get("body", INPUT), PARAMS)


_ADDRESS = "an address, as in https://host/path, with no user, password or fragment"
_HEADERS = (
    "a table of header names and printable ASCII; one whose name sounds like a secret "
    'comes from "env:NAME" or "file:/path", also with a word before it ("Bearer env:NAME"); '
    f"{', '.join(_OURS)} are set by the engine"
)
_TABLE = f"a table of whole numbers, 1 to {_MOST_AT_ONCE}: min ≤ start ≤ max"
_Seconds = Annotated[
    float, Field(strict=True, ge=0.01, le=86_400, description="a number of seconds")
]


class UpstreamOptions(EngineOptions):
    """Options that both engines take."""

    url: Annotated[str, fits(_is_address), Field(description=_ADDRESS)]
    #: by name; the worker alone reads what `env:NAME` or `file:/path` stand for
    headers: Annotated[
        dict[str, str],
        fits(lambda headers: all(map(_is_header, headers, headers.values()))),
    ] = Field({}, description=_HEADERS)
    timeout_s: _Seconds = 30.0  #: of one request in all
    connect_timeout_s: _Seconds = 5.0
    concurrency: Annotated[
        Concurrency, BeforeValidator(_concurrency), Field(description=_TABLE)
    ] = Concurrency()
    breaker: Annotated[
        BreakerOptions,
        Field(description="a table: failures (1 to 1000), open_s (0.1 to 3600)"),
    ] = BreakerOptions()
    #: path that answers 200 while the upstream is healthy; "": none
    health: Annotated[
        str, fits(_PATH.fullmatch), Field(description="a path that begins with /")
    ] = ""
    #: certificates (PEM) to trust in place of the system's; "": those
    ca: Annotated[str, Field(description="the path of a PEM file")] = ""
    max_answer_mb: Annotated[int, whole(1, 1024, "MiB")] = 16

    def conflicts(self) -> Iterator[str]:
        """Implements `EngineOptions.conflicts`."""
        given = "connect_timeout_s" in self.model_fields_set  # the default may be longer
        if given and self.connect_timeout_s > self.timeout_s:
            yield "options.connect_timeout_s must be at most options.timeout_s"

    def limits(self, task: Task) -> dict[str, Any]:
        """Implements `EngineOptions.limits`."""
        follows = {"in_flight": self.concurrency.max, "slice_items": _IN_FLIGHT_SLICES}
        return follows | ({} if task == "embedding" else {"max_batch": 1})

    def limit_problems(self, limits: Mapping[str, Any], task: Task) -> Iterator[str]:
        """Implements `EngineOptions.limit_problems`."""
        if "in_flight" in limits:
            yield "options.concurrency.max says how many are in flight at most"
        if task != "embedding" and limits.get("max_batch", 1) != 1:
            yield "limits.max_batch is 1: a request takes one input"
        longest_s = limits.get("max_launch_s", 60)
        if isinstance(longest_s, int) and self.timeout_s + self.connect_timeout_s >= longest_s:
            yield (
                "options.timeout_s and connect_timeout_s together must be less than "
                f"limits.max_launch_s ({longest_s} s), after which the worker is taken to hang"
            )


class HttpOptions(UpstreamOptions):
    """Options of the engine `http`: one input a request."""

    method: Annotated[Literal["POST", "PUT"], Field(description="POST or PUT")] = "POST"
    #: template of the request, in which INPUT and PARAMS stand for themselves
    body: Annotated[
        Any,
        fits(lambda body: _mentions(body, INPUT)),
        Field(description=f'a template with "{INPUT}" where the input goes'),
    ] = INPUT
    #: place of the output in the answer (JSON pointer, RFC 6901); "": all of it
    output: Annotated[
        str, fits(_POINTER.fullmatch), Field(description="a JSON pointer, as in /results/0")
    ] = ""


class OpenAIOptions(UpstreamOptions):
    """Options of the engine `openai`."""

    #: address with the /v1 at its end
    url: Annotated[
        str,
        fits(lambda url: _is_address(url) and "?" not in url),
        Field(description=f"{_ADDRESS} or query: what ends in /v1"),
    ]
    #: name of the model at the upstream
    model: Annotated[str, Field(min_length=1, description="the model's name at the upstream")]
    api_key: Annotated[
        str,
        fits(_SECRET.fullmatch),
        Field(description='"env:NAME" or "file:/path": a secret has no place here'),
    ] = ""
    #: encoding of vectors in answers
    encoding_format: Annotated[
        Literal["base64", "float"], Field(description='"base64" or "float"')
    ] = "base64"
