"""Options of the engines `http` and `openai`, whose models another server runs."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from jobs.models.engines.engine_spec import EngineOptions, EntryContext, Task
from jobs.problems import fits

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


class BreakerOptions(BaseModel):
    """Circuit breaker of one upstream."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    failures: Annotated[int, Field(ge=1, le=1000)] = 5  #: failures in a row that open it
    open_s: Annotated[float, Field(ge=0.1, le=3600)] = 10.0  #: seconds without requests


def _concurrency(given: Any) -> Concurrency:
    """Reads a table; a part that is missing is the nearest to its default that fits the others."""
    whole = isinstance(given, dict) and all(type(n) is int for n in given.values())
    if whole and given.keys() <= {"min", "start", "max"}:
        usual = Concurrency()
        least = given.get("min", min(usual.min, given.get("max", usual.max)))
        most = given.get("max", max(usual.max, least, given.get("start", 1)))
        start = given.get("start", min(max(usual.start, least), most))
        if 1 <= least <= start <= most <= _MOST_AT_ONCE:
            return Concurrency(least, start, most)
    raise ValueError(f"must be a table of whole numbers, 1 to {_MOST_AT_ONCE}: min ≤ start ≤ max")


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


def _are_headers(headers: Mapping[str, str]) -> bool:
    return all(_is_header(name, value) for name, value in headers.items())


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
_Address = Annotated[str, fits(_is_address, _ADDRESS)]
_Seconds = Annotated[float, Field(ge=0.01, le=86_400)]


class UpstreamOptions(EngineOptions):
    """Options that both engines take."""

    url: _Address = Field(description=_ADDRESS)
    #: by name; the worker alone reads what `env:NAME` or `file:/path` stand for
    headers: Annotated[dict[str, str], fits(_are_headers, _HEADERS)] = Field({})
    timeout_s: _Seconds = 30.0  #: of one request in all
    connect_timeout_s: _Seconds = 5.0
    concurrency: Annotated[Concurrency, BeforeValidator(_concurrency)] = Concurrency()
    breaker: BreakerOptions = BreakerOptions()
    #: path that answers 200 while the upstream is healthy; "": none
    health: Annotated[str, fits(_PATH.fullmatch, "a path that begins with /")] = ""
    ca: str = ""  #: path of certificates (PEM) to trust in place of the system's; "": those
    max_answer_mb: int = Field(16, ge=1, le=1024)  #: MiB

    def conflicts(self, entry: EntryContext | None) -> Iterator[str]:
        """Implements `EngineOptions.conflicts`."""
        limits = entry.limits if entry else {}
        if "in_flight" in limits:
            yield "concurrency.max says how many are in flight at most, not limits.in_flight"
        if entry and entry.task != "embedding" and limits.get("max_batch", 1) != 1:
            yield "limits.max_batch is 1: a request takes one input"
        given = "connect_timeout_s" in self.model_fields_set  # the default may be longer
        longest_s = limits.get("max_launch_s", 60) if entry else None
        if given and self.connect_timeout_s > self.timeout_s:
            yield "connect_timeout_s must be at most timeout_s"
        elif isinstance(longest_s, int) and self.timeout_s + self.connect_timeout_s >= longest_s:
            yield (
                "timeout_s and connect_timeout_s together must be less than limits.max_launch_s "
                f"({longest_s} s), after which the worker is taken to hang"
            )

    def limits(self, task: Task) -> dict[str, Any]:
        """Implements `EngineOptions.limits`."""
        follows = {"in_flight": self.concurrency.max, "slice_items": _IN_FLIGHT_SLICES}
        return follows | ({} if task == "embedding" else {"max_batch": 1})


class HttpOptions(UpstreamOptions):
    """Options of the engine `http`: one input a request."""

    method: Literal["POST", "PUT"] = "POST"
    #: template of the request, in which INPUT and PARAMS stand for themselves
    body: Annotated[
        Any,
        fits(
            lambda body: _mentions(body, INPUT), f'a template with "{INPUT}" where the input goes'
        ),
    ] = INPUT
    #: place of the output in the answer (JSON pointer, RFC 6901); "": all of it
    output: Annotated[str, fits(_POINTER.fullmatch, "a JSON pointer, as in /results/0")] = ""


class OpenAIOptions(UpstreamOptions):
    """Options of the engine `openai`."""

    url: Annotated[_Address, fits(lambda url: "?" not in url, "an address without a query")] = (
        Field(description=f"{_ADDRESS} or query: what ends in /v1")
    )
    model: str = Field(min_length=1, description="the model's name at the upstream")
    api_key: Annotated[
        str, fits(_SECRET.fullmatch, '"env:NAME" or "file:/path": a secret has no place here')
    ] = ""
    #: chats are streamed from the upstream, token by token, and served by the generation host
    stream: bool = False
    #: the server goes on with a text: it takes `continue_final_message`, as vLLM does
    continues: bool = False
    encoding_format: Literal["base64", "float"] = "base64"  #: of vectors in answers
