"""A table means the same at each door and in each format; what would differ is found."""

from pathlib import Path
from unittest import mock

from millrace.inputs import readers
from ops.bench.fuzzing.tables import REFUSED, differences, stored

ROWS = [{"text": "one\n", "id": 7}, {"text": "two", "id": 0}]
NAMED = {"column": "text", "id_column": "id"}


def test_tables_are_read_alike_at_every_door() -> None:
    assert list(differences(1, 25)) == []


def test_what_is_stored_is_compared(tmp_path: Path) -> None:
    found = dict(stored(ROWS, NAMED, tmp_path))
    wanted = [(b"7", b"\\N", b"\\N", b'"one\\\\n"'), (b"0", b"\\N", b"\\N", b'"two"')]
    assert len(found) == 11
    assert [door for door, rows in found.items() if rows != wanted] == []
    refused = stored([*ROWS, {"text": "three", "id": 7}], NAMED, tmp_path)
    assert {rows for _, rows in refused} == {REFUSED}  # an id twice


def test_a_door_that_differs_is_named() -> None:
    with mock.patch.object(readers, "id_of", lambda value: str(value)):
        found = list(differences(1, 25))
    assert found
    assert "client csv: " in found[0]
