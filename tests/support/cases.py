"""A loop over the cases of a test, which goes on after one that fails, and names all that did."""

import traceback
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import TypeVar

import pytest

T = TypeVar("T")
_FAILED = (Exception, BaseExceptionGroup, pytest.fail.Exception)


class Case:
    """Keeps the failure of its block, under the name of the case."""

    def __init__(self, name: str, failures: list[str]) -> None:
        self._name, self._failures = name, failures

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        where: TracebackType | None,
    ) -> bool:  # fmt: skip
        if not isinstance(error, _FAILED):
            return False
        frame = traceback.extract_tb(where)[-1]
        at = f"{Path(frame.filename).name}:{frame.lineno}"
        self._failures.append(f"{self._name}: {at}: {type(error).__name__}: {error}")
        return True


def each(cases: Iterable[T], name: Callable[[T], object] = str) -> Iterator[tuple[T, Case]]:
    """Yields cases to be tested in a `with` block each; fails after the last one, with the names
    and messages of those that failed, or if there was none at all."""
    failures: list[str] = []
    n = 0
    for case in cases:
        n += 1
        yield case, Case(str(name(case)), failures)
    assert n, "there are no cases"
    assert not failures, f"{len(failures)} of {n} cases failed:\n" + "\n".join(failures)
