"""Generates the page of request fields from their table: `python ops/generate_request_fields.py`.
A test tells where the page differs from what it would write."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import orjson

from jobs.models.inputs.request_fields.row import ROUTES, Row, Use
from jobs.models.inputs.request_fields.table import ROWS, TITLES

PAGE = Path(__file__).parent / "docs" / "reference" / "request_fields.md"

_INTRO = """# Request fields

Fields of requests to models, of all APIs: OpenAI's [chat completions and
completions](../how-to/clients/generation.md), [responses](../how-to/clients/responses.md) and
[embeddings](../how-to/clients/embeddings.md), and Anthropic's
[messages](../how-to/clients/anthropic.md), and vLLM's
[tokenization](../how-to/clients/generation.md#tokens). An input of `POST /infer`, an item of a job
and a line of a batch have those of chat completions, completions or responses, without the fields
of the call; a request of a Message Batch has those of messages.

A field that isn't here is refused with its name, and so is a value that asks for what isn't served.
null stands for a field that isn't there. A dot leads into an object, `[]` into a list. The page is
generated from the table that requests are checked by
(`jobs/models/inputs/request_fields/table.py`). Models of other servers that don't stream, and of
Python files, get chat completions as they are.
"""
_SECTIONS: Mapping[Use, str] = {
    "call": "## Of the call\n\nThey are no part of an input.\n",
    "input": "## Of the input\n\nType and range are checked where they are read.\n",
    "label": "## Without an effect on the output\n\nA value of this type is accepted.\n",
    "refused": "## Not served\n\nRefused, unless the value is one that changes nothing.\n",
}


def page() -> str:
    """Returns the text of the page."""
    return "\n".join([_INTRO, *("\n".join(_section(use)) for use in _SECTIONS)]) + "\n"


def _section(use: Use) -> Iterator[str]:
    rows = sorted((row for row in ROWS if row.use == use), key=lambda row: (row.name, row.routes))
    yield _SECTIONS[use]
    types = use != "refused"
    neutral = use != "label"
    yield _line("field", "of", *["type"] * types, "", *["changes nothing"] * neutral)
    yield _line(*["---"] * (3 + types + neutral))
    for row in rows:
        changes_nothing = ", ".join(f"`{orjson.dumps(one).decode()}`" for one in row.neutral)
        cells = [f"`{row.name}`", _routes(row), *[row.kind] * types, row.does]
        yield _line(*cells, *[changes_nothing] * neutral)
    yield ""


def _routes(row: Row) -> str:
    return "all" if row.routes == ROUTES else ", ".join(TITLES[route] for route in row.routes)


def _line(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    PAGE.write_text(page())
