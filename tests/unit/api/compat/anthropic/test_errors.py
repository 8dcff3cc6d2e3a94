"""Errors in Anthropic's form: each fault is named once, in the words of its request."""

import pytest

from api.compat.anthropic.errors import as_anthropic
from jobs.errors import Fault, Invalid, MillraceError


def told(*faults: Fault, detail: str = "") -> str:
    detail = detail or "; ".join(fault.message for fault in faults)
    message: str = as_anthropic(Invalid(detail, faults=faults), "req_1")["error"]["message"]
    return message


NUL = "messages[0].content holds a NUL character"


@pytest.mark.parametrize(
    ("loc", "message", "shown"),
    [
        (("messages", 0, "role"), "the role must be", "messages.0.role: the role must be"),
        (("max_tokens",), "max_tokens must be", "max_tokens must be"),
        (("messages", 0, "content"), NUL, NUL),
        (("messages[0].content",), NUL, NUL),
        (("input",), "prompt is too long", "prompt is too long"),
    ],
)
def test_a_fault_names_its_place_once(loc: tuple[str | int, ...], message: str, shown: str) -> None:
    assert told(Fault(loc, "x", message)) == shown
    other = Fault(("top_k",), "x", "must be a number")
    assert told(Fault(loc, "x", message), other) == f"{shown}; top_k: must be a number"


def test_a_detail_of_its_own_stands_before_the_faults() -> None:
    fault = Fault(("requests", 0), "x", "is empty")
    assert told(fault, detail="one of 9 is wrong") == "one of 9 is wrong; requests.0: is empty"
    assert as_anthropic(MillraceError("it broke"), "")["error"]["message"] == "it broke"
