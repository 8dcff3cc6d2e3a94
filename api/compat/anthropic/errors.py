"""Errors as Anthropic's clients know them: {"type": "error", "error": {"type", "message"}}.

https://platform.claude.com/docs/en/api/errors
"""

import re
from typing import Any

from jobs.dialects.messages import NO_THREADS, in_anthropics_words
from jobs.errors import Fault, MillraceError, without_surrogates

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
_INDEX = re.compile(r"\[(\d+)\]")
_MAX_FAULTS = 20  # faults that a message names


def as_anthropic(error: MillraceError, id: str) -> dict[str, Any]:
    """Returns Anthropic's object of an error. `id` is the request's."""
    message = in_anthropics_words(_message(error))
    message = without_surrogates(message)  # it may quote one
    kind = _KINDS.get(error.status, "invalid_request_error" if error.status < 500 else "api_error")
    told = {"type": kind, "message": message, **_details(error)}
    return {"type": "error", "error": told, "request_id": id}


def _details(error: MillraceError) -> dict[str, Any]:
    """Returns the details by which tool runners of the SDKs go on without `thread`."""
    if all(fault.code != NO_THREADS for fault in error.faults):
        return {}
    return {"details": {"error_code": NO_THREADS, "unsupported": ["thread"]}}


def _message(error: MillraceError) -> str:
    """Returns the words of an error, each fault with its place."""
    faults = error.faults
    told = [_fault_text(fault) for fault in faults[:_MAX_FAULTS]]
    if faults and error.detail == "; ".join(fault.message for fault in faults):
        return "; ".join([*told, *(fault.message for fault in faults[_MAX_FAULTS:])])
    return "; ".join([error.detail, *(text for text in told if text not in error.detail)])


def _fault_text(fault: Fault) -> str:
    """Returns a fault's message behind its place, unless that stands there already, or is that of
    the whole input, which these requests have no name for."""
    where = ".".join(str(part) for part in fault.loc)
    begins = _INDEX.sub(r".\1", fault.message).startswith(_INDEX.sub(r".\1", where))
    return fault.message if begins or fault.loc == ("input",) else f"{where}: {fault.message}"
