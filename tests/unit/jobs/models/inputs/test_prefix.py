"""Beginnings by which calls find the worker that has computed them."""

from typing import Any

import orjson

from jobs.models.inputs.prefix import prefix_digest
from tests.support.cases import each

LONG = "be kind to every guest, " * 30
IDS = list(range(400))


def digest(value: Any, tenant: str = "t", adapter: str = "") -> str | None:
    return prefix_digest(tenant, adapter, orjson.dumps(value))


def chat(first: str, *others: str) -> dict[str, Any]:
    system = {"role": "system", "content": first}
    return {"messages": [system, *({"role": "user", "content": one} for one in others)]}


def test_requests_that_begin_alike_have_one_digest() -> None:
    cases = [
        (chat(LONG, "who?"), chat(LONG, "why?")),
        (chat("short", LONG, "who?"), chat("short", LONG, "why?")),
        (chat(LONG), {"max_tokens": 7, **chat(LONG), "n": 2}),
        ({"prompt": LONG + "who?"}, {"temperature": 0, "prompt": LONG + "why?", "n": 2}),
        ({"prompt": [*IDS, 1]}, {"prompt": [*IDS, 2]}),
    ]
    for (one, other), case in each(cases):
        with case:
            assert digest(one)
            assert digest(one) == digest(other)


def test_other_beginnings_roles_tenants_and_adapters_have_others() -> None:
    whose = ("t", ""), ("u", ""), ("t", "legal"), ("t", "tax"), ("tlegal", "")
    user = {"messages": [{"role": "user", "content": LONG}]}
    values = [chat(LONG), user, {"prompt": LONG}, {"prompt": "A" + LONG}, {"prompt": IDS}]
    digests = {digest(value, *its) for its in whose for value in values}
    assert len(digests) == len(whose) * len(values)


def test_what_is_short_or_no_prompt_has_none() -> None:
    cases = ["text" * 200, None, {}, chat("short", "too"), {"prompt": "short"}, {"prompt": [1, 2]}]
    for value, case in each(cases):
        with case:
            assert digest(value) is None
