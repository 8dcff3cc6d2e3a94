"""Entries and known answers of versions, in the form in which they are stored."""

from collections.abc import Mapping
from typing import Any

import orjson

from jobs.errors import Invalid
from jobs.models.probe import Probe


def split(entry: Mapping[str, Any]) -> tuple[str, str, dict[str, Any]]:
    """Returns name, version and the other fields of an entry. Raises Invalid."""
    fields = dict(entry)
    name, version = fields.pop("name", None), fields.pop("version", None)
    if not isinstance(name, str) or not isinstance(version, str):
        raise Invalid("an entry has a name and a version, both texts")
    return name, version, fields


def known_answers(text: str) -> str:
    """Returns a probe in the one form in which it is stored; "" for none. Raises Invalid."""
    if not text:
        return ""
    try:
        return Probe.from_json(text).as_json()
    except ValueError as error:
        raise Invalid(f"the known answers can't be recorded: {error}") from error


def as_json(entry: Mapping[str, Any]) -> str:
    """Returns the fields of an entry in the one form in which they are stored. Raises Invalid."""
    try:
        text = orjson.dumps(dict(entry), option=orjson.OPT_SORT_KEYS).decode()
    except (TypeError, ValueError) as error:
        raise Invalid(f"the entry has a value that JSON can't hold: {error}") from error
    if "\\u0000" in text:
        raise Invalid("the entry has a NUL character: remove it")
    return text
