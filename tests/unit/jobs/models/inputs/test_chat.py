"""Conversations that a chat model takes."""

from typing import Any

import pytest

from jobs.models.inputs import chat


@pytest.mark.parametrize("role", ["user", "system", "tool"])
def test_a_role_is_taken(role: str) -> None:
    assert chat.refuse({"messages": [{"role": role, "content": "hello"}]}) is None


@pytest.mark.parametrize("role", ["nobody", None, 1, [], {}, ["user"]])
def test_any_other_value_is_no_role(role: Any) -> None:
    refused = chat.refuse({"messages": [{"role": role, "content": "hello"}]})
    assert refused is not None
    assert refused.startswith("needs a role in messages[0]")
