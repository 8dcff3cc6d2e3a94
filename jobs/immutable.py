"""Immutable records that are cheap to make.

`dataclass(frozen=True)` sets each field by `object.__setattr__`, which makes an object of eight
fields four times as expensive; a call makes a dozen such objects. Here mypy alone refuses to change
a field, by `dataclass_transform` (PEP 681).
"""

from dataclasses import dataclass, field
from typing import TypeVar, dataclass_transform

_Class = TypeVar("_Class")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def immutable(cls: type[_Class]) -> type[_Class]:
    """Makes a class a dataclass with slots, whose fields nobody may change. It has no hash."""
    return dataclass(slots=True)(cls)
