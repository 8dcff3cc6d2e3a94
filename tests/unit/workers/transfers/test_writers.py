"""Parts of results on a disk."""

from contextlib import closing

from jobs.dialects import dialect
from workers.transfers.writers import Parts

ROW = {
    "seq": 0, "custom_id": None, "outcome": "succeeded", "output": b'"x"', "error": None,
    "attempts": 1, "units": 1, "truncated": None, "version": None,
}  # fmt: skip


def test_a_part_that_nobody_stored_is_closed_with_the_others() -> None:
    with closing(Parts({}, dialect("native"), "items", {})) as parts:
        assert not [*parts.add(ROW)]
        completing = parts.finish()
        part = next(completing)  # an exception of its storing keeps this generator where it is
    assert part.content.closed


def test_a_stored_part_is_closed_before_the_next() -> None:
    with closing(Parts({"part_items": 1}, dialect("native"), "items", {})) as parts:
        contents = [part.content for _ in range(2) for part in parts.add(ROW)]
        assert [content.closed for content in contents] == [True, True]
