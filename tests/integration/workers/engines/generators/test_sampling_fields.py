"""vLLM's fields about what comes in a text and what ends it, on a network that computes."""

from pathlib import Path
from typing import Any

from tests.support.generation.generating import Generated, run, sequence
from workers.engines.transformers.engine import TransformersGenerator

ASKED = {"prompt": "the cat sat on the mat", "temperature": 0}


def write(tiny: TransformersGenerator, **fields: Any) -> Generated:
    [done] = run(tiny, [sequence(tiny, {**ASKED, **fields})])
    return done


def test_a_stop_token_ends_a_text_which_has_it_where_that_is_asked_for(
    tiny: TransformersGenerator,
) -> None:
    whole = write(tiny, ignore_eos=True)
    assert (len(whole.tokens), whole.finish) == (12, "length")
    ends = {"ignore_eos": True, "stop_token_ids": [whole.tokens[3]]}
    at = whole.tokens.index(whole.tokens[3])
    cut = write(tiny, **ends)
    assert (cut.tokens, cut.finish) == (whole.tokens[: at + 1], "stop")
    longer = write(tiny, **ends, include_stop_str_in_output=True, skip_special_tokens=False)
    assert longer.tokens == cut.tokens
    assert longer.text != cut.text
    waits = write(tiny, **ends, min_tokens=at + 2)
    assert len(waits.tokens) >= at + 2


def test_bad_words_do_not_come(tiny: TransformersGenerator, tiny_folder: Path) -> None:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(tiny_folder / "tokenizer.json"))
    texts = {token: tokenizer.decode([token]) for token in write(tiny, ignore_eos=True).tokens}
    words = {
        token: text
        for token, text in texts.items()
        if text.strip() and tokenizer.encode(text, add_special_tokens=False).ids == [token]
    }
    assert words
    found = write(tiny, ignore_eos=True, bad_words=[*words.values()])
    assert not words.keys() & set(found.tokens)
