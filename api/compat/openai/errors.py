"""Errors as OpenAI's clients know them: {"error": {"message", "type", "param", "code"}}.

https://platform.openai.com/docs/guides/error-codes
"""

from typing import Any

from jobs.dialects.openai import TOO_LONG, is_too_long
from jobs.errors import Fault, MillraceError, QuotaExceeded, without_surrogates

#: OpenAI's error codes by ours, where they differ.
_CODES = {
    "unauthenticated": "invalid_api_key",
    "forbidden": "insufficient_permissions",
    "unknown_model": "model_not_found",
    "quota_exceeded": "rate_limit_exceeded",
    "predicted_wait": "rate_limit_exceeded",
    "spend_cap": "insufficient_quota",
    "unknown_param": "unknown_parameter",
    # codes of pydantic
    "missing": "missing_required_parameter",
    "extra_forbidden": "unknown_parameter",
}
_PLACES = {"body", "query", "path", "header"}


def as_openai(error: MillraceError, id: str) -> dict[str, Any]:
    """Returns OpenAI's object of an error. The request's id stands in X-Request-Id."""
    first = error.faults[0] if error.faults else None
    code = _code(error, first)
    message = error.detail if first is None or first.message in error.detail else first.message
    param = _param(first) if first else "model" if code == "model_not_found" else None
    message = without_surrogates(message)  # it may quote one
    return {"error": {"message": message, "type": _type(error, code), "param": param, "code": code}}


def _code(error: MillraceError, first: Fault | None) -> str:
    code = error.code
    if first and code == "invalid":
        code = TOO_LONG if _is_too_long(first) else first.code
    return _CODES.get(code, code)


def _is_too_long(fault: Fault) -> bool:
    return fault.loc == ("input",) and is_too_long(fault.code, fault.message)


def _param(fault: Fault) -> str | None:
    """Returns a path into the body: `body.input`."""
    parts = [str(part) for part in fault.as_json()["loc"]]
    return ".".join(parts[1:] if parts[:1] and parts[0] in _PLACES else parts) or None


def _type(error: MillraceError, code: str) -> str:
    if code == "insufficient_quota":
        return code
    if error.status >= 500:
        return "server_error"
    if error.status == 429:
        return "tokens" if _is_of_tokens(error) else "requests"
    return "invalid_request_error"


def _is_of_tokens(error: MillraceError) -> bool:
    names = "tokens_per_s", "tokens_per_min"
    return isinstance(error, QuotaExceeded) and error.bound.name in names
