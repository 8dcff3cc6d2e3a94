"""Immutable records: like frozen dataclasses for mypy, and cheap to make."""

from dataclasses import field, fields, replace

import pytest

from jobs.immutable import immutable


@immutable
class _Point:
    x: int
    y: int = 0
    tags: list[str] = field(default_factory=list)


def test_a_record_is_a_dataclass_with_slots() -> None:
    point = _Point(1, tags=["a"])
    assert (point.x, point.y, point.tags) == (1, 0, ["a"])
    assert point == _Point(1, 0, ["a"])
    assert replace(point, y=2) == _Point(1, 2, ["a"])
    assert [one.name for one in fields(_Point)] == ["x", "y", "tags"]
    assert not hasattr(point, "__dict__")


def test_it_has_no_hash() -> None:
    with pytest.raises(TypeError, match="unhashable"):
        hash(_Point(1))


def test_mypy_alone_refuses_a_change() -> None:
    point = _Point(1)
    point.x = 2  # type: ignore[misc]  # mypy warns of an ignore that isn't needed
    assert point.x == 2
