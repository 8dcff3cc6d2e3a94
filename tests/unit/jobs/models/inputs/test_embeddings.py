"""What embedding models take, and how many inputs it stands for."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from jobs.intake import validation
from jobs.intake.validation import Item
from jobs.models.builtin_models import SAMPLES
from jobs.models.inputs import embeddings
from jobs.models.inputs.embeddings import MOST_INPUTS, MOST_TOKEN_IDS
from jobs.models.model import Model
from tests.support.cases import each
from tests.support.json_values import json_values

MINILM, ECHO = SAMPLES.resolve("minilm"), SAMPLES.resolve("echo")
TEXTS_ALONE = Model("a", "1", "function", task="embedding")
token_ids = st.lists(st.integers(0, 30521), min_size=1)


@given(st.lists(st.one_of(st.text(), token_ids), min_size=1))
def test_a_text_or_its_token_ids_are_one_input_and_a_list_stands_for_its_own(
    value: list[Any],
) -> None:
    for one in value:
        assert validation.refuse_input(MINILM, one) is None
        assert MINILM.split_inputs(one) is None
    assert validation.refuse_input(MINILM, value) is None
    assert MINILM.split_inputs(value) == value


@given(json_values)
def test_whatever_is_taken_has_right_inputs_alone(value: Any) -> None:
    if validation.refuse_input(MINILM, value) is None:
        inputs = MINILM.split_inputs(value) or [value]
        assert all(validation.refuse_input(MINILM, one) is None for one in inputs)
        assert all(isinstance(one, str) or embeddings.is_token_ids(one) for one in inputs)


def test_what_is_wrong_is_named_with_its_place_and_texts_are_taken_without_a_vocabulary() -> None:
    cases = [
        (7, "type", "takes a text, its token ids, or a list of either, not a number"),
        ({"a": 1}, "type", "not an object"),
        ([], "empty", "is empty"),
        ([None], "type", "token id 0 is not a whole number"),
        ([1, 2.0], "type", "token id 1"),
        ([1, True], "type", "token id 1"),
        ([0, 30522], "range", "token id 1 is 30522; they are 0 to 30521"),
        ([-1], "range", "token id 0 is -1"),
        (["a", 1], "type", "input 1 of the list: it must be a string, or a list of token ids"),
        (["a", []], "type", "input 1 of the list"),
        (["a", ["b"]], "type", "input 1 of the list"),
        ([[1], [2, 30522]], "range", "input 1 of the list: token id 1"),
        ([1] * (MOST_TOKEN_IDS + 1), "too_long", "8193 token ids"),
        (["a"] * (MOST_INPUTS + 1), "too_many", "2049 inputs"),
    ]
    for (value, code, words), case in each(cases):
        with case:
            found = validation.refuse_input(MINILM, value)
            assert found[0] == code
            assert words in found[1]
    cases = [([1], "it must be a string"), (["a", [1]], "input 1"), (7, "of texts")]
    for (value, words), case in each(cases):
        with case:
            assert words in (validation.refuse_input(TEXTS_ALONE, value) or ("", ""))[1]
            assert validation.refuse_input(TEXTS_ALONE, ["a", "b"]) is None


def test_an_item_knows_how_many_inputs_it_stands_for_and_minilm_its_dimensions() -> None:
    for value, inputs in (("a", 1), ([1, 2], 1), (["a"], 1), (["a"] * 7, 7)):
        found = validation.check({"input": value}, (), None, MINILM, True)
        assert isinstance(found, Item)
        assert found.inputs == inputs
    assert ECHO.split_inputs(["a", "b"]) is None, "it does no embeddings"
    for wanted, fine in ((1, True), (384, True), (0, False), (385, False)):
        assert (validation.refuse_params(MINILM, {"dimensions": wanted}) is None) == fine


def test_token_ids_are_sized_with_the_special_ones() -> None:
    cases = [
        ([7], {}, 3),
        ([101, 7, 102], {}, 3),
        ([101, 7], {}, 4),
        ([101], {}, 3),
        ([7] * 300, {}, 256),
        ([7] * 300, {"truncate": 9}, 9),
    ]
    for (value, params, size), case in each(cases):
        with case:
            assert MINILM.size(value, params) == size
