"""What the models file says of models that someone else serves: the options of the engines `http`
and `openai`, checked without asking anybody."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar
from urllib.parse import urlsplit

INPUT, PARAMS = "$input", "$params"
"""What these strings stand for in a template is put in their place."""

_SECRET = re.compile(r"(?:\S+ )?(?:env:[A-Za-z_][A-Za-z0-9_]*|file:/\S+)")
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_HEADER_VALUE = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?")
_HEADER_OF_SECRETS = re.compile(r"auth|cookie|key|token|secret|password", re.IGNORECASE)
_OURS = ("host", "content-length", "content-type", "transfer-encoding", "connection", "accept")
_POINTER = re.compile(r"(?:/(?:[^~/]|~[01])*)*")
_ODD = re.compile(r"[^!-~]")
_MOST_AT_ONCE = 1000
_IN_FLIGHT_SLICES = 100  # items a slice: about one to two seconds of what an upstream does


@dataclass(frozen=True, slots=True)
class Concurrency:
    """Requests in flight from one worker: never fewer or more, and how many at first."""

    min: int = 1
    start: int = 4
    max: int = 32


@dataclass(frozen=True, slots=True)
class Patience:
    """After so many failures in a row, with no answer between them, the upstream is left alone for
    so long."""

    failures: int = 5
    open_s: float = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Upstream:
    """What both engines are told.

    headers: by name; what comes from `env:NAME` or `file:/path` is read by the worker alone.
    timeout_s: of one request in all. health: a path that answers 200 while the upstream is well.
    ca: a file of certificates (PEM) to trust in place of the system's. max_answer_mb: MiB.
    """

    url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    timeout_s: float = 30.0
    connect_timeout_s: float = 5.0
    concurrency: Concurrency = Concurrency()
    breaker: Patience = Patience()
    health: str = ""
    ca: str = ""
    max_answer_mb: int = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpOptions(Upstream):
    """One input a request. body: a template, in which INPUT and PARAMS stand for themselves;
    output: where the answer has the output, as a JSON pointer (RFC 6901); empty: all of it."""

    method: str = "POST"
    body: Any = INPUT
    output: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenAIOptions(Upstream):
    """url: with the /v1 at its end. model: what the upstream calls it. api_key: `env:NAME` or
    `file:/path`. encoding_format: how vectors travel, "base64" or "float"."""

    model: str
    api_key: str = ""
    encoding_format: str = "base64"


_Options = TypeVar("_Options", bound=Upstream)
_Check = tuple[Callable[[Any], bool], str]


def http(options: Mapping[str, Any]) -> HttpOptions:
    """Raises ValueError with every problem."""
    return _read(HttpOptions, options)


def openai(options: Mapping[str, Any]) -> OpenAIOptions:
    """Raises ValueError with every problem."""
    return _read(OpenAIOptions, options)


def passes_params(options: Mapping[str, Any]) -> bool:
    """Whether an `http` model's template has a place for parameters."""
    return _mentions(options.get("body", INPUT), PARAMS)


def limits_of(entry: Mapping[str, Any], where: str, problems: list[str]) -> Any:
    """The limits of an entry of either engine, with what follows from its options: a request is a
    launch. What is wrong with the options is added to the problems."""
    options, limits = entry.get("options", {}), entry.get("limits", {})
    if not isinstance(options, dict) or not isinstance(limits, dict):
        return limits  # which is told elsewhere
    task = entry.get("task") or ("any" if entry["engine"] == "http" else "chat")
    read = http if entry["engine"] == "http" else openai
    try:
        found = read(options)
    except ValueError as error:
        problems += [f"{where}: {problem}" for problem in error.args[0]]
        return limits
    if "in_flight" in limits:
        problems.append(f"{where}: options.concurrency.max says how many are in flight at most")
    if task != "embedding" and limits.get("max_batch", 1) != 1:
        problems.append(f"{where}: limits.max_batch is 1: a request takes one input")
    longest_s = limits.get("max_launch_s", 60)
    if isinstance(longest_s, int) and found.timeout_s + found.connect_timeout_s >= longest_s:
        problems.append(
            f"{where}: options.timeout_s and connect_timeout_s together must be less than "
            f"limits.max_launch_s ({longest_s} s), after which the worker is taken to hang"
        )
    ours = {"in_flight": found.concurrency.max, "slice_items": _IN_FLIGHT_SLICES}
    return ours | ({} if read is openai and task == "embedding" else {"max_batch": 1}) | limits


def _read(kind: type[_Options], options: Mapping[str, Any]) -> _Options:
    checks = _CHECKS[kind]
    names = ", ".join(checks)
    problems = [
        f"unknown option {key!r}; there are: {names}" for key in options if key not in checks
    ]
    problems += [
        f"options.{key} {wanted}"
        for key, (takes, wanted) in checks.items()
        if key in options and not takes(options[key])
    ]
    needed = [key for key in ("url", "model") if key in checks and key not in options]
    problems += [f"options.{key} is missing: it {checks[key][1]}" for key in needed]
    if not problems and options.get("connect_timeout_s", 0) > options.get("timeout_s", 30.0):
        problems.append("options.connect_timeout_s must be at most options.timeout_s")
    if problems:
        raise ValueError(problems)
    made = dict(options)
    if "concurrency" in made:
        made["concurrency"] = _concurrency(made["concurrency"])
    if "breaker" in made:
        made["breaker"] = Patience(**made["breaker"])
    return kind(**made)


def _concurrency(given: Mapping[str, int]) -> Concurrency:
    """Where a part is not given, what is nearest to the usual."""
    usual = Concurrency()
    least = given.get("min", min(usual.min, given.get("max", usual.max)))
    most = given.get("max", max(usual.max, least, given.get("start", 1)))
    return Concurrency(least, given.get("start", min(max(usual.start, least), most)), most)


# -- what each option may be


def _is_number(value: Any, least: float, most: float) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and least <= value <= most


def _is_whole(value: Any, most: int) -> bool:
    return isinstance(value, int) and _is_number(value, 1, most)


def _is_address(value: Any) -> bool:
    if not isinstance(value, str) or _ODD.search(value):
        return False
    try:
        parts = urlsplit(value)
        named = bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
    return named and parts.scheme in ("http", "https") and not ("@" in parts.netloc or "#" in value)


def _is_base(value: Any) -> bool:
    return _is_address(value) and "?" not in value


def _is_path(value: Any) -> bool:
    return value == "" or (
        isinstance(value, str) and value.startswith("/") and not _ODD.search(value)
    )


def _is_secret(value: Any) -> bool:
    return isinstance(value, str) and bool(_SECRET.fullmatch(value))


def _are_headers(value: Any) -> bool:
    return isinstance(value, dict) and all(map(_is_header, value, value.values()))


def _is_header(name: str, value: Any) -> bool:
    if not _HEADER_NAME.fullmatch(name) or name.lower() in _OURS:
        return False
    if _HEADER_OF_SECRETS.search(name):
        return _is_secret(value)
    return _is_secret(value) or (isinstance(value, str) and bool(_HEADER_VALUE.fullmatch(value)))


def _is_concurrency(value: Any) -> bool:
    known = {f.name for f in fields(Concurrency)}
    if not isinstance(value, dict) or not value.keys() <= known:
        return False
    if not all(_is_whole(number, _MOST_AT_ONCE) for number in value.values()):
        return False
    found = _concurrency(value)
    return found.min <= found.start <= found.max


def _is_patience(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and value.keys() <= {f.name for f in fields(Patience)}
        and _is_whole(value.get("failures", 1), 1000)
        and _is_number(value.get("open_s", 1), 0.1, 3600)
    )


def _mentions(template: Any, word: str) -> bool:
    if isinstance(template, dict):
        return any(_mentions(inner, word) for inner in template.values())
    if isinstance(template, list):
        return any(_mentions(inner, word) for inner in template)
    return bool(template == word)


_ADDRESS = "must be an address, as in https://host/path, with no user, password or fragment"
_COMMON: Mapping[str, _Check] = {
    "url": (_is_address, _ADDRESS),
    "headers": (
        _are_headers,
        "must be a table of header names and printable ASCII; one whose name sounds like a secret "
        'comes from "env:NAME" or "file:/path", also with a word before it ("Bearer env:NAME"); '
        f"{', '.join(_OURS)} are set by the engine",
    ),
    "timeout_s": (lambda v: _is_number(v, 0.01, 86_400), "must be a number of seconds"),
    "connect_timeout_s": (lambda v: _is_number(v, 0.01, 86_400), "must be a number of seconds"),
    "concurrency": (
        _is_concurrency,
        f"must be a table of whole numbers, 1 to {_MOST_AT_ONCE}: min ≤ start ≤ max",
    ),
    "breaker": (_is_patience, "must be a table: failures (1 to 1000), open_s (0.1 to 3600)"),
    "health": (_is_path, "must be a path that begins with /"),
    "ca": (lambda v: isinstance(v, str), "must be the path of a PEM file"),
    "max_answer_mb": (lambda v: _is_whole(v, 1024), "must be a whole number of MiB, 1 to 1024"),
}
_CHECKS: Mapping[type[Upstream], Mapping[str, _Check]] = {
    HttpOptions: {
        **_COMMON,
        "method": (lambda v: v in ("POST", "PUT"), "must be POST or PUT"),
        "body": (lambda v: _mentions(v, INPUT), f'must have "{INPUT}" where the input goes'),
        "output": (
            lambda v: isinstance(v, str) and bool(_POINTER.fullmatch(v)),
            "must be a JSON pointer, as in /results/0",
        ),
    },
    OpenAIOptions: {
        **_COMMON,
        "url": (_is_base, f"{_ADDRESS} or query: what ends in /v1"),
        "model": (lambda v: isinstance(v, str) and v != "", "must be what the upstream calls it"),
        "api_key": (_is_secret, 'must be "env:NAME" or "file:/path": a secret has no place here'),
        "encoding_format": (lambda v: v in ("base64", "float"), 'must be "base64" or "float"'),
    },
}
