"""Log probabilities of completions: names of tokens, none of which two of a place have."""

from typing import Any

from jobs.models.inputs.logprobs import of_completion


def token(text: str, logprob: float, raw: bytes | None = None, *top: Any) -> dict[str, Any]:
    spelled = None if raw is None else list(raw)
    return {"token": text, "logprob": logprob, "bytes": spelled, "top_logprobs": list(top)}


def test_parts_of_characters_are_named_by_their_bytes_and_stand_where_their_character_does() -> (
    None
):
    umlaut = "ä".encode()
    tokens = [
        token("a", -0.1, b"a"),
        token("", -0.2, umlaut[:1], token("\ufffd", -0.2, umlaut[:1])),
        token("ä", -0.3, umlaut[1:]),
        token("b", -0.4, b"b"),
    ]
    found = of_completion(tokens, 5)
    assert found["tokens"] == ["a", "bytes:\\xc3", "bytes:\\xa4", "b"]
    assert found["text_offset"] == [5, 6, 6, 7]
    assert found["token_logprobs"] == [-0.1, -0.2, -0.3, -0.4]
    assert found["top_logprobs"][1] == {"bytes:\\xc3": -0.2}


def test_likely_tokens_of_one_text_stay_apart_and_the_chosen_one_is_among_them() -> None:
    parts = [token("\ufffd", -n, bytes([0xC0 + n])) for n in range(1, 4)]
    [found] = of_completion([token("x", -9.0, b"x", *parts)], 0)["top_logprobs"]
    assert found == {"bytes:\\xc1": -1, "bytes:\\xc2": -2, "bytes:\\xc3": -3, "x": -9.0}
    same = token("A", -1.0, b"A"), token("A", -2.0, b"A")
    for chosen, logprob in (("A", -1.0), ("A", -2.0)):
        [found] = of_completion([token(chosen, logprob, b"A", *same)], 0)["top_logprobs"]
        assert found == {"A": -1.0, "bytes:\\x41": -2.0}
    [found] = of_completion([token("A", -3.0, b"A", same[0])], 0)["top_logprobs"]
    assert found == {"A": -1.0, "bytes:\\x41": -3.0}


def test_a_server_that_tells_no_bytes_loses_no_likely_token() -> None:
    same = [token("\ufffd", -n) for n in range(1, 5)]
    [found] = of_completion([token("\ufffd", -1, None, *same)], 0)["top_logprobs"]
    assert sorted(found.values()) == [-4, -3, -2, -1]
    assert of_completion([token("\0", -1.0, b"\0")], 0)["tokens"] == ["\ufffd"]
