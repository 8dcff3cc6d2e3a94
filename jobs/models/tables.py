"""Reads the tables of the models file into typed values, and words every problem."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import is_dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, TypeVar, cast, get_args, get_origin, get_type_hints

from pydantic import AfterValidator, BaseModel, Field, TypeAdapter, ValidationError, ValidationInfo
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

_T = TypeVar("_T")
_UNKNOWN = ("extra_forbidden", "unexpected_keyword_argument")
_TABLES = ("dataclass_type", "model_type", "dict_type", "mapping_type")


class TableError(ValueError):
    """Everything that is wrong with a table."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


def whole(least: int, most: int | None = None, what: str = "") -> Any:
    """Returns a field that is a whole number in this range."""
    words = f"a whole number of {what}" if what else "a whole number"
    bounds = f"{least} or more" if most is None else f"{least} to {most}"
    return Field(strict=True, ge=least, le=most, description=f"{words}, {bounds}")


def fits(test: Callable[[Any], bool]) -> AfterValidator:
    """Returns a validator for a field whose description says what values must be."""

    def check(value: Any) -> Any:
        if not test(value):
            raise ValueError
        return value

    return AfterValidator(check)


def _below_folder(path: str, info: ValidationInfo) -> str:
    return str(info.context / path) if info.context else path


Text = Annotated[str, Field(description="a string")]
Flag = Annotated[bool, Field(strict=True, description="true or false")]
FilePath = Annotated[Text, AfterValidator(_below_folder)]
"""Path that is relative to the folder of the models file."""


def read(kind: type[_T], table: Any, path: str = "", folder: Path | None = None) -> _T:
    """Reads a table as a dataclass or a pydantic model.

    path: dotted name of the table, for errors. folder: relative paths in the table begin there.
    Raises TableError.
    """
    try:
        found: _T = _adapter(cast(Any, kind)).validate_python(table, context=folder)
        return found
    except ValidationError as error:
        problems = [problem for one in error.errors() for problem in _worded(kind, one, path)]
        raise TableError(list(dict.fromkeys(problems))) from None


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def _worded(kind: Any, error: ErrorDetails, place: str) -> Iterator[str]:
    """Words one error by the description of the innermost field that has one."""
    described = wanted = ""
    known = _fields(kind)
    rest = list(error["loc"])
    while rest and (isinstance(rest[0], int) or rest[0] in known):
        part = rest.pop(0)
        if isinstance(part, int):
            kind, place, description = get_args(kind)[0], f"{place} number {part + 1}", ""
        else:
            joint = "" if not place else ": " if place[-1].isdigit() else "."
            place = f"{place}{joint}{part}"
            kind, description = known[part]
        known = _fields(kind)
        if description or known:
            described, wanted = place, description
    code, cause = error["type"], error.get("ctx", {}).get("error")
    if code in _UNKNOWN or rest[1:] == ["[key]"]:
        names = ", ".join(known) or error["ctx"]["expected"]
        yield f"unknown key {rest[0]!r}{place and f' in {place}'}; there are: {names}"
    elif code == "missing":
        yield f"{place} is missing{wanted and f': it must be {wanted}'}"
    elif cause and cause.args and isinstance(cause.args[0], list):
        yield from cause.args[0]
    elif cause and cause.args:
        yield f"{'.'.join(map(str, [place, *rest]))} {cause}"
    elif wanted:
        yield f"{described} must be {wanted}"
    elif code in _TABLES:
        yield f"{place} must be a table"
    else:
        yield f"{place} must be {error['msg'].removeprefix('Input should be ')}"


def _fields(kind: Any) -> Mapping[Any, tuple[Any, str]]:
    """Type and description of each field, by its name in the file."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return {name: (f.annotation, f.description or "") for name, f in kind.model_fields.items()}
    if not (isinstance(kind, type) and is_dataclass(kind)):
        return {}
    found = {}
    for name, hint in get_type_hints(kind, include_extras=True).items():
        annotation, *metadata = get_args(hint) if get_origin(hint) is Annotated else (hint,)
        infos = [info for info in metadata if isinstance(info, FieldInfo)]
        alias = next((info.alias for info in infos if info.alias), name)
        found[alias] = annotation, next((i.description for i in infos[::-1] if i.description), "")
    return found
