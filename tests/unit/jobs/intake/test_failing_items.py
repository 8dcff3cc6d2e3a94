"""Items with a fault in a job that says `on_invalid: fail_item`: each is stored as one that fails,
and says what is wrong and where."""

import json
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest

from jobs import ids
from jobs.errors import Invalid, TooLarge
from jobs.intake import custom_ids, invalid_lines
from jobs.intake.feeding import add_array, add_lines
from jobs.intake.spool import Intake
from jobs.models.model import Limits, Model


def rows(fill: Callable[[Intake], None], **options: Any) -> list[tuple[str, Any]]:
    """The custom_id of each item, and its input, or the message that it fails with."""
    model = Model("echo", "1", "echo", limits=Limits(max_item_bytes=60))
    given: dict[str, Any] = {"strict": False, "max_items": 5000, **options}
    with closing(Intake(ids.new(), "acme", model, **given)) as taken:
        fill(taken)
        found = [row.decode().rstrip("\n").split("\t") for row in taken.rows]
        assert [int(row[2]) for row in found] == list(range(taken.total))
        assert taken.bounds[-1] == taken.total
    texts = [(row[3], row[6].replace("\\\\", "\\")) for row in found]
    return [(id, invalid_lines.message_of(text) or json.loads(text)) for id, text in texts]


def test_every_fault_of_a_line_fails_its_item_alone() -> None:
    lines: list[bytes | None] = [
        b'"fine"', b"{", None, b"", b'{"custom_id": "a"}', b'{"input": 1, "colour": 2}',
        b'{"custom_id": "", "input": 1}', b'"%s"' % (b"x" * 70), b'{"input": 1, "params": []}',
        b'"\\u0000"', b"18446744073709551616", b'{"custom_id": "b", "input": "\\\\"}',
    ]  # fmt: skip
    lines[1:1] = [b'{"input": 1, "\\ud800": 1}', b'{"input": "x", "params": {"\\udfff": 1}}']
    found = rows(lambda taken: add_lines(taken, lines))
    assert [found[0], found[-1]] == [("\\N", "fine"), ("b", "\\")]
    assert [id for id, _ in found[1:-1]] == [*["\\N"] * 5, "a", *["\\N"] * 6]
    for number, (_, message) in enumerate(found[1:-1], start=2):
        assert message.startswith(f"line {number}"), message
    assert "line 7, input: an item needs an input" in found[6][1]
    assert "line 10: the input has 72 bytes; echo@1 takes 60" in found[9][1]


def test_of_equal_ids_all_but_the_first_fail() -> None:
    ids = ["a", "b", "a", "c", "b", "a"]
    items = [{"custom_id": id, "input": n} for n, id in enumerate(ids)]
    items.insert(1, {"custom_id": "c", "colour": 1})
    found = rows(lambda taken: add_array(taken, items))
    assert [id for id, _ in found] == ["a", "c", *ids[1:]]
    assert found[1][1].startswith("items[1]")
    assert [message for _, message in found if isinstance(message, int)] == [0, 1]
    assert [message for _, message in found[3:]] == [
        "items[3].custom_id: custom_id is already that of item 0",
        "items[4].custom_id: custom_id is already that of item 1",
        "items[5].custom_id: custom_id is already that of item 2",
        "items[6].custom_id: custom_id is already that of item 0",
    ]
    lines = [json.dumps(item).encode() for item in items]
    again = rows(lambda taken: add_lines(taken, lines))
    assert again[3][1] == "line 4, custom_id: custom_id is already that of line 1"


def test_many_equal_ids_are_found_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(custom_ids, "_MANY", 7)
    items = [{"custom_id": f"{n % 40}", "input": n} for n in range(100)]
    found = rows(lambda taken: add_array(taken, items))
    assert [one for _, one in found[:40]] == list(range(40))
    for n in range(40, 100):
        place = f"items[{n}].custom_id: custom_id is already that of item {n % 40}"
        assert found[n][1] == place


def test_what_concerns_the_whole_job_still_refuses_it() -> None:
    items = [{"custom_id": "a", "input": 1}] * 3
    for options, error in (({"max_items": 2}, Invalid), ({"max_bytes": 300}, TooLarge)):
        with pytest.raises(error):
            rows(lambda taken: add_array(taken, items), **options)
    with pytest.raises(Invalid):
        rows(lambda taken: add_array(taken, []))
