"""Reference of the HTTP API, from the OpenAPI document: a page for each tag, one of all schemas."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from ops.site.schemas import PAGE, as_json, in_words, row, section, table

FOLDER = "reference/api"
Node = Mapping[str, Any]
_TITLES = {"openai": "OpenAI", "open inference protocol": "Open Inference Protocol"}
_INTRODUCTION = """# HTTP API

Every operation of the api, from its OpenAPI document ([openapi.json](openapi.json)). A running api
serves that at `/openapi.json`, and at `/docs` a page that sends requests. Operations marked *with a
key* need `Authorization: Bearer mk_…` once there is a key. An error is a
[Problem](schemas.md#problem), except in the APIs of others, which have their own.
"""


def reference(document: Node) -> dict[str, str]:
    """Returns texts by path on the site."""
    schemas = document["components"]["schemas"]
    by_tag: dict[str, list[tuple[str, str, Node]]] = defaultdict(list)
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            by_tag[operation["tags"][0]].append((method.upper(), path, operation))
    pages = {_page(tag): _tag(tag, found, schemas) for tag, found in by_tag.items()}
    sections = (section(name, schemas[name]) for name in sorted(schemas))
    pages[PAGE] = "\n\n".join(["# Schemas", *sections])
    pages["index.md"] = _index(by_tag)
    return {f"{FOLDER}/{page}": text for page, text in pages.items()}


def _page(tag: str) -> str:
    return f"{tag.replace(' ', '_')}.md"


def _index(by_tag: Mapping[str, Iterable[tuple[str, str, Node]]]) -> str:
    rows = [
        f"| `{method} {path}` | [{operation['summary']}]({_page(tag)}#{_anchor(operation)}) |"
        for tag, operations in sorted(by_tag.items())
        for method, path, operation in operations
    ]
    return "\n".join([_INTRODUCTION, "| operation | |", "|---|---|", *rows])


def _tag(tag: str, operations: Iterable[tuple[str, str, Node]], schemas: Node) -> str:
    title = _TITLES.get(tag, f"{tag[0].upper()}{tag[1:]}")
    return "\n\n".join([f"# {title}", *(_operation(*one, schemas) for one in operations)])


def _operation(method: str, path: str, operation: Node, schemas: Node) -> str:
    parts = [
        f"## {operation['summary']} {{ #{_anchor(operation)} }}",
        f"`{method} {path}`{', with a key' if operation.get('security') else ''}",
        operation.get("description", ""),
        _parameters(operation.get("parameters", ())),
        _request(operation.get("requestBody", {}), schemas),
        _responses(operation["responses"]),
    ]
    return "\n\n".join(filter(None, parts))


def _anchor(operation: Node) -> str:
    return str(operation["operationId"])


def _parameters(parameters: Iterable[Node]) -> str:
    rows = [
        row(f"`{one['name']}`{' *' if one.get('required') else ''} ({one['in']})",
            one["schema"], one.get("description", ""))
        for one in parameters
    ]  # fmt: skip
    return table("parameter", rows)


def _request(body: Node, schemas: Node) -> str:
    parts = []
    for kind, content in body.get("content", {}).items():
        schema = content.get("schema", {})
        parts.append(f"**Body** `{kind}`: {in_words(schema)}")
        name = schema.get("$ref", "").rpartition("/")[2]
        parts += map(as_json, schemas.get(name, {}).get("examples", ())[:1])
    return "\n\n".join(parts)


def _responses(responses: Mapping[str, Node]) -> str:
    """Those of success; errors are the same for all operations, but for their statuses."""
    right = [f"**{status}** {_answer(one)}" for status, one in responses.items() if status < "4"]
    wrong = ", ".join(status for status in responses if status >= "4")
    return "\n\n".join([*right, f"Errors: {wrong}" if wrong else ""]).strip()


def _answer(response: Node) -> str:
    kinds = [
        f"`{kind}`: {in_words(content.get('schema', {}))}"
        for kind, content in response.get("content", {}).items()
    ]
    return "; ".join(kinds) or "without a body"
