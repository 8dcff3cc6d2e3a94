"""Lines of results that any reader splits where they end."""

import orjson
from hypothesis import given
from hypothesis import strategies as st

from api.gateway.streaming.event_stream import event
from jobs.blobs.lines import one_line
from tests.support.json_values import json_values

TEXTS = st.text(st.sampled_from('\u2028\u2029\x85\u2027\x84\xc2\xe2\\"\n\rxü\U0001f600u'))


@given(st.lists(TEXTS) | st.dictionaries(TEXTS, TEXTS) | json_values)
def test_a_json_text_is_one_line_whoever_splits_it_and_says_the_same(value: object) -> None:
    raw = one_line(orjson.dumps(value))
    assert len(raw.decode().splitlines()) == 1
    assert orjson.loads(raw) == value


def test_a_text_without_other_line_ends_is_not_copied() -> None:
    for raw in (b'{"a":"b"}', '{"a":"\xe9\u2027"}'.encode()):
        assert one_line(raw) is raw


def test_the_data_of_an_event_is_one_line() -> None:
    [name, data, _] = event({"text": "a\u2028b\u2029c\x85d"}, "tokens").decode().split("\n")[:3]
    assert name == "event: tokens"
    assert data.splitlines() == [data]
    assert orjson.loads(data.removeprefix("data: ")) == {"text": "a\u2028b\u2029c\x85d"}
