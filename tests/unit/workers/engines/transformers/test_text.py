"""Text while tokens arrive: whole characters, and never a part of a stop string."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.generation import tiny_llama
from workers.engines.transformers.child.text import Detokenizer, StopStrings

TEXT = "Grüße aus Köln 猫 und 👩‍🚀, naïve — ok"


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Any:
    from tokenizers import Tokenizer

    folder = tmp_path_factory.mktemp("tokenizer")
    tiny_llama.save_tokenizer(folder)
    return Tokenizer.from_file(str(folder / "tokenizer.json"))


def test_characters_of_several_tokens_come_whole_or_cut_at_the_end(
    tokenizer: Any,
) -> None:
    tokens = tokenizer.encode(TEXT).ids
    assert len(tokens) > len(TEXT)
    stream = Detokenizer(tokenizer, tokenizer.encode("before ").ids)
    pieces = [stream.add(token) for token in tokens]
    assert "".join(pieces) == TEXT
    assert "" in pieces
    assert stream.finish() == ""
    tokens = tokenizer.encode("ok 猫").ids
    stream = Detokenizer(tokenizer, [])
    assert "".join(stream.add(token) for token in tokens[:-1]) == "ok "
    assert stream.finish() == "\ufffd"


def test_special_tokens_are_no_text_and_no_bytes_hold_it_back(
    tokenizer: Any,
) -> None:
    stream = Detokenizer(tokenizer, [])
    texts = [stream.add(token) for token in [0, *tokenizer.encode("a").ids, 1] * 20]
    assert "".join(texts) == "a" * 20
    [half] = set(tokenizer.encode("猫").ids[:1])
    stream = Detokenizer(tokenizer, [])
    assert any(stream.add(half) for _ in range(40))


def test_a_stop_string_ends_the_text_before_it_and_what_becomes_none_is_released() -> None:
    stops = StopStrings(["\nUser:", "END"])
    assert [stops.add(text) for text in ["Hello", "\nUs", "er: hi"]] == ["Hello", "", ""]
    assert stops.matched == "\nUser:"
    stops = StopStrings(["abcd"])
    assert [stops.add(text) for text in ["xab", "c", "x"]] == ["x", "", "abcx"]
    assert stops.add("ab") == ""
    assert stops.finish() == "ab"
    assert not stops.matched


def test_the_stop_string_that_comes_first_counts_after_the_least_length() -> None:
    stops = StopStrings(["late", "so"])
    assert stops.add("and so it is late") == "and "
    assert stops.matched == "so"
    stops = StopStrings(["a"])
    assert stops.add("banana", may_end=False) == "banana"
    assert stops.add("xa") == "x"
    assert stops.matched


@given(st.lists(st.text("ab", max_size=4)), st.lists(st.text("ab", min_size=1, max_size=4)))
def test_text_in_pieces_ends_where_it_would_as_a_whole(pieces: Any, wanted: Any) -> None:
    stops, whole, text = StopStrings(wanted), "".join(pieces), ""
    for piece in pieces:
        text += stops.add(piece)
        if stops.matched:
            break
    if not any(stop in whole for stop in wanted):
        assert text + stops.finish() == whole
    else:
        assert stops.matched in wanted
        assert not any(stop in text for stop in wanted)
        assert whole.startswith(text)
