"""Ids: both forms name the same thing, and both sort by time."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs import clock, ids
from tests.support.cases import each

SHOWN = "job_01h455vb4pex5vsknk084sn02q"  # from the specification of TypeID


@given(st.uuids(), st.uuids())
def test_an_id_is_read_back_as_it_was_shown_and_sorts_alike(one: UUID, other: UUID) -> None:
    assert ids.parse("job", ids.show("job", one)) == one
    assert (ids.show("job", one) < ids.show("job", other)) == (one < other)


def test_new_ids_are_of_version_7_differ_and_sort_by_their_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = [ids.new() for _ in range(100)]
    assert {(id.version, id.variant) for id in made} == {(7, "specified in RFC 4122")}
    made = [ids.parse("call", ids.new_shown("call")) for _ in range(100)]
    assert {id and (id.version, id.variant) for id in made} == {(7, "specified in RFC 4122")}
    assert len(set(made)) == 100
    start = datetime(2026, 1, 1, tzinfo=UTC)
    made = []
    for ms in range(50):
        monkeypatch.setattr(clock, "now", lambda ms=ms: start + timedelta(milliseconds=ms))
        made.append(ids.new())
    assert made == sorted(made)
    monkeypatch.setattr(clock, "now", lambda: start)
    assert len({ids.new() for _ in range(1000)}) == 1000


def test_the_example_of_the_specification_is_read_and_garbage_is_no_id() -> None:
    cases = [
        "",
        "job",
        "job_",
        "_01h455vb4pex5vsknk084sn02q",
        "01h455vb4pex5vsknk084sn02q",
        "item_01h455vb4pex5vsknk084sn02q",
        SHOWN.upper(),
        SHOWN[:-1],
        SHOWN + "0",
        SHOWN.replace("h", "l"),  # not a digit of Crockford's
        SHOWN.replace("_0", "_8"),  # 128 bits would not hold it
        SHOWN.replace("01h", "0\N{SUPERSCRIPT ONE}h"),
        "job_01890a5d-ac96-774b-bcce-b302099a8057",
        "../etc/passwd",
    ]
    for text, case in each(cases):
        with case:
            assert ids.parse("job", text) is None
    assert ids.parse("job", SHOWN) == UUID("01890a5d-ac96-774b-bcce-b302099a8057")


@given(st.text())
def test_no_text_breaks_the_reader(text: str) -> None:
    found = ids.parse("job", "job_" + text)
    assert found is None or ids.show("job", found) == "job_" + text
