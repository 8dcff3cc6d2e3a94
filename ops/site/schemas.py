"""Schemas of the OpenAPI document, in words: a type, a table of fields, an example."""

import json
from collections.abc import Mapping
from typing import Any

Schema = Mapping[str, Any]

PAGE = "schemas.md"
_BOUNDS = {
    "minimum": "≥ {}", "exclusiveMinimum": "> {}", "maximum": "≤ {}", "exclusiveMaximum": "< {}",
    "minLength": "≥ {} characters", "maxLength": "≤ {} characters",
    "minItems": "≥ {} entries", "maxItems": "≤ {} entries", "maxProperties": "≤ {} pairs",
}  # fmt: skip


def in_words(schema: Schema) -> str:
    """Returns the type of a value, with links to named schemas."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}]({PAGE}#{name.lower()})"
    if "const" in schema:
        return _code(schema["const"])
    if "enum" in schema:
        return ", ".join(map(_code, schema["enum"]))
    if options := schema.get("anyOf") or schema.get("oneOf"):
        return " or ".join(dict.fromkeys(map(in_words, options)))
    if schema.get("type") == "array":
        return _bounded(f"list of {in_words(schema.get('items', {}))}", schema)
    return _bounded(schema.get("type", "any value"), schema)


def section(name: str, schema: Schema) -> str:
    """Returns a section of the page of schemas."""
    parts = [f"## {name}", schema.get("description", ""), fields(schema)]
    if "properties" not in schema:
        parts.append(in_words(schema))
    return "\n\n".join(filter(None, [*parts, *map(as_json, schema.get("examples", ())[:1])]))


def fields(schema: Schema) -> str:
    """Returns the table of an object's fields; empty without fields."""
    required = schema.get("required", ())
    rows = [
        row(f"`{name}`" + (" *" if name in required else ""), field)
        for name, field in schema.get("properties", {}).items()
    ]
    return table("field", rows)


def table(of: str, rows: list[str]) -> str:
    """Returns rows below a head; required ones are marked with a star."""
    return "\n".join(
        [f"| {of} (* required) | type | meaning |", "|---|---|---|", *rows] if rows else []
    )


def row(name: str, schema: Schema, description: str = "") -> str:
    """Returns a row: name, type, meaning with the default."""
    meaning = [description or schema.get("description", "")]
    if schema.get("default") is not None:
        meaning.append(f"default {_code(schema['default'])}")
    cells = [name, in_words(schema), "; ".join(filter(None, meaning))]
    return f"| {' | '.join(' '.join(cell.split()).replace('|', '&#124;') for cell in cells)} |"


def as_json(value: Any) -> str:
    """Returns a block of JSON."""
    return f"```json\n{json.dumps(value, indent=2, ensure_ascii=False)}\n```"


def _bounded(type_: str, schema: Schema) -> str:
    bounds = [words.format(schema[key]) for key, words in _BOUNDS.items() if key in schema]
    return ", ".join([type_, *bounds])


def _code(value: Any) -> str:
    return f"`{json.dumps(value, ensure_ascii=False)}`"
