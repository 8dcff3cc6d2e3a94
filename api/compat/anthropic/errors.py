"""Errors as Anthropic's clients know them: {"type": "error", "error": {"type", "message"}}.

https://platform.claude.com/docs/en/api/errors
"""

from typing import Any

from jobs.dialects.messages import in_anthropics_words
from jobs.errors import Fault, MillraceError

_KINDS = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    422: "invalid_request_error",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}
_MAX_FAULTS = 20  # faults that a message names


def as_anthropic(error: MillraceError, id: str) -> dict[str, Any]:
    """Returns Anthropic's object of an error. `id` is the request's."""
    faults = map(_fault_text, error.faults[:_MAX_FAULTS])
    message = "; ".join([error.detail, *(text for text in faults if text not in error.detail)])
    message = (
        in_anthropics_words(message).encode("utf-8", "replace").decode()
    )  # it may quote a lone surrogate
    kind = _KINDS.get(error.status, "invalid_request_error" if error.status < 500 else "api_error")
    return {"type": "error", "error": {"type": kind, "message": message}, "request_id": id}


def _fault_text(fault: Fault) -> str:
    where = ".".join(str(part) for part in fault.loc)
    return f"{where}: {fault.message}" if where else fault.message
