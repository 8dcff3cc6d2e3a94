"""Constraint on the text of a request, from the fields by which OpenAI and vLLM have it."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import orjson

from jobs.models.inputs.fields import FieldError, Fields
from jobs.models.inputs.structured.caps import MOST_CHOICES, check_schema, check_size, check_text

Kind = Literal["json", "regex", "choice", "grammar"]
KINDS: tuple[Kind, ...] = ("json", "regex", "choice", "grammar")
_FIELDS = sorted(
    {"response_format", "structured_outputs", "regex", "choice", "grammar"}
    | {f"guided_{kind}" for kind in KINDS}
)
"""Fields that constrain the text; a request has one of them at most."""

ANY_OBJECT: Mapping[str, Any] = {"type": "object"}
_FORMATS = ("text", "json_object", "json_schema")
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True, slots=True)
class Constraint:
    """Form that the whole text must have."""

    kind: Kind
    value: Any  #: schema, regular expression, list of texts, or grammar of Lark
    field: str  #: place in the request
    strict: bool = True  #: of a schema: keywords that can't be enforced are refused, not ignored
    name: str = "answer"  #: of a schema

    @property
    def as_upstream(self) -> dict[str, Any]:
        """Fields by which another server gets it: OpenAI's for JSON, else vLLM's."""
        if self.kind != "json":
            return {"structured_outputs": {self.kind: self.value}}
        if self.value == ANY_OBJECT:
            return {"response_format": {"type": "json_object"}}
        schema = {"name": self.name, "schema": self.value, "strict": self.strict}
        return {"response_format": {"type": "json_schema", "json_schema": schema}}


def read_constraint(fields: Fields) -> Constraint | None:
    """Returns the constraint of a request, or None. Raises FieldError."""
    given = [name for name in _FIELDS if fields.get(name) is not None]
    found = [one for name in given if (one := _read(name, fields.get(name)))]
    if len(found) > 1:
        raise FieldError(found[1].field, f"must be left out beside {found[0].field}")
    return found[0] if found else None


def _read(name: str, value: Any) -> Constraint | None:
    if name == "response_format":
        return _response_format(value)
    if name == "structured_outputs":
        return _structured_outputs(value)
    kind = next(kind for kind in KINDS if name.endswith(kind))
    return _constraint(kind, value, name)


def _response_format(value: Any) -> Constraint | None:
    kind = value.get("type") if isinstance(value, dict) else None
    if kind not in _FORMATS:
        raise FieldError("response_format.type", f"must be one of {', '.join(_FORMATS)}")
    if kind != "json_schema":
        return _constraint("json", ANY_OBJECT, "response_format") if kind == "json_object" else None
    place = "response_format.json_schema"
    given = value.get("json_schema")
    if not isinstance(given, dict):
        raise FieldError(place, 'must be an object with "name" and "schema"')
    name = given.get("name")
    if name is not None and not (isinstance(name, str) and _NAME.fullmatch(name)):
        wanted = "must have 1 to 64 letters, digits, underscores and hyphens"
        raise FieldError(f"{place}.name", wanted)
    strict = given.get("strict")
    if not isinstance(strict, bool | None):
        raise FieldError(f"{place}.strict", "must be true or false")
    place = f"{place}.schema"
    check_schema(place, given.get("schema"))
    return Constraint("json", given["schema"], place, bool(strict), name or "answer")


def _structured_outputs(value: Any) -> Constraint | None:
    """Reads vLLM's object. A constraint that is absent or false doesn't count."""
    if not isinstance(value, dict):
        raise FieldError("structured_outputs", f"must be an object with one of {', '.join(KINDS)}")
    parts = {kind: value.get(kind) for kind in KINDS}
    given = {kind: part for kind, part in parts.items() if part is not None and part is not False}
    if value.get("json_object"):
        given.setdefault("json", ANY_OBJECT)
    if len(given) > 1:
        raise FieldError("structured_outputs", f"must have one of {', '.join(sorted(given))}")
    if not given:
        return None
    kind = next(iter(given))
    return _constraint(kind, given[kind], f"structured_outputs.{kind}")


def _constraint(kind: Kind, value: Any, place: str) -> Constraint:
    if kind == "json":
        value = _schema(place, value)
        return Constraint(kind, value, place, strict=False)
    if kind == "choice":
        _check_choice(place, value)
    else:
        check_text(place, value)
    return Constraint(kind, value, place)


def _schema(place: str, value: Any) -> Any:
    if isinstance(value, str):  # vLLM takes it so, too
        check_text(place, value)
        try:
            value = orjson.loads(value)
        except orjson.JSONDecodeError:
            raise FieldError(place, "must be a JSON schema") from None
    check_schema(place, value)
    return value


def _check_choice(place: str, value: Any) -> None:
    are_texts = isinstance(value, list) and all(isinstance(one, str) and one for one in value)
    if not are_texts or not 1 <= len(value) <= MOST_CHOICES:
        raise FieldError(
            place, f"must be a list of 1 to {MOST_CHOICES:,} texts, none of them empty"
        )
    check_size(place, value)
