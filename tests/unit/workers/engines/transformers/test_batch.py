"""Continuous batch over a network without weights: which chunks a step has, who gives way; the pool
of its blocks, none of which is ever lost; text while tokens arrive."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.models.inputs.generation import GenerationRequest, Sampling
from tests.support.cases import each
from tests.support.generation import tiny_llama
from workers.engines.generator import Capacity, NewSequence, Prompt
from workers.engines.protocol import InvalidInput, Permanent
from workers.engines.transformers.child.batch import Batch
from workers.engines.transformers.child.blocks import PADDING, BlockPool, digests, seed_digest
from workers.engines.transformers.child.sequences import Choice, Chunk
from workers.engines.transformers.child.text import Detokenizer, StopStrings, TokenBytes
from workers.engines.transformers.structured.compiler import Vocabulary
from workers.engines.transformers.structured.matching import Grammars

BLOCK = 4
NO_GRAMMARS = Grammars(Vocabulary("", 1000, (999,)))


class Counting:
    """Network whose next token is the number of tokens before it; it keeps the chunks."""

    vocabulary = 1000

    def __init__(self) -> None:
        self.steps: list[list[tuple[str, int, int]]] = []
        self.cleared: list[int] = []
        self.broken: set[str] = set()

    def next_tokens(self, chunks: Sequence[Chunk]) -> list[Choice]:
        self.steps.append([(chunk.sequence.id, chunk.start, chunk.end) for chunk in chunks])
        for chunk in chunks:
            assert len(chunk.sequence.blocks) * BLOCK >= chunk.end
        return [
            Choice(-1 if chunk.sequence.id in self.broken else len(chunk.sequence.tokens))
            for chunk in chunks
            if chunk.completes
        ]

    def clear(self, blocks: Sequence[int]) -> None:
        self.cleared += blocks


class NoText:
    def decode(self, tokens: Sequence[int], **_: bool) -> str:
        return "x" * len(tokens)


def batch(
    *sequences: NewSequence,
    blocks: int = 32,
    places: int = 8,
    context: int = 64,
    kind: type[Counting] = Counting,
) -> tuple[Batch, Counting]:
    network, capacity = kind(), Capacity(blocks, BLOCK, places, context)
    made = Batch(network, NoText(), frozenset([999]), capacity, NO_GRAMMARS)
    for one in sequences:
        made.add(one)
    return made, network


def new(id: str, tokens: Sequence[int], most: int = 5, salt: str = "") -> NewSequence:
    prompt = Prompt(tokens, len(tokens), GenerationRequest())
    return NewSequence(id, prompt, Sampling(max_tokens=most), salt=salt)


def different(number: int, size: int) -> list[int]:
    return [100 * number + place for place in range(size)]


def of_size(size: int) -> list[NewSequence]:
    """Three sequences that have nothing in common."""
    return [new(id, different(number, size)) for number, id in enumerate("abc")]


def test_decodes_go_on_beside_chunks_of_a_prompt_and_the_oldest_is_computed_first() -> None:
    made, network = batch(new("a", different(1, 3)))
    made.step(8)
    made.add(new("b", different(2, 12)))
    steps = [made.step(8), made.step(8)]
    assert network.steps == [[("a", 0, 3)], [("a", 3, 4), ("b", 0, 8)], [("a", 4, 5), ("b", 8, 12)]]
    assert [step.prefill_tokens for step in steps] == [8, 4]
    assert [step.kv_tokens for step in steps] == [3, 12]
    made, network = batch(*of_size(6))
    made.step(10)
    assert network.steps == [[("a", 0, 6), ("b", 0, 4)]]
    made, _ = batch(*of_size(2), places=2)
    assert made.step(100).sequences == 2


def test_prompts_go_in_the_order_of_the_step_and_the_last_of_it_gives_its_blocks_back() -> None:
    made, network = batch(*of_size(6))
    made.step(8, ["c", "a", "b"])
    made.step(20, ["a", "b"])
    assert network.steps == [
        [("c", 0, 6), ("a", 0, 2)],
        [("c", 6, 7), ("a", 2, 6), ("b", 0, 6)],
    ]
    made, network = batch(*of_size(8), blocks=4)
    made.step(12, ["c", "a", "b"])
    made.step(4, ["b", "a"])
    made.step(4, ["a", "b"])
    assert network.steps == [
        [("c", 0, 8), ("a", 0, 4)],
        [("c", 8, 9), ("b", 0, 4)],
        [("c", 9, 10), ("a", 0, 4)],
    ]


def test_a_block_that_a_step_computes_is_waited_for_and_not_computed_twice() -> None:
    made, network = batch(new("a", different(1, 11)), new("b", [*different(1, 10), 7]))
    first, second = made.step(100), made.step(100)
    assert network.steps == [[("a", 0, 11)], [("a", 11, 12), ("b", 8, 11)]]
    assert [emitted.cached for step in (first, second) for emitted in step.emitted] == [0, 0, 8]


def test_a_prompt_in_chunks_is_shared_chunk_by_chunk_unless_salts_differ() -> None:
    made, network = batch(new("a", different(1, 16)), new("b", different(1, 16)))
    for _ in range(3):
        made.step(8)
    computed = sum(end - start for step in network.steps for id, start, end in step if id == "b")
    assert computed == 4  # the block of the last token, which is always computed
    made, network = batch(*(new(id, different(1, 11), salt=id) for id in "ab"))
    made.step(100)
    assert network.steps == [[("a", 0, 11), ("b", 0, 11)]]


class Scoring(Counting):
    """Network that scores prompts as well: a token's logprob is its place in the prompt."""

    def next_tokens(self, chunks: Sequence[Chunk]) -> list[Choice]:
        for chunk in chunks:
            if scores := chunk.sequence.scores:
                tokens = enumerate(chunk.sequence.tokens)
                found = [Choice(token, -float(n), ((7, -0.5),), 2) for n, token in tokens]
                scores.found += [found[place + 1] for place in chunk.scored]
        return super().next_tokens(chunks)


def scored(id: str, tokens: Sequence[int], most: int = 5, **more: Any) -> NewSequence:
    request = GenerationRequest(prompt=tokens, prompt_logprobs=1)
    return NewSequence(id, Prompt(tokens, len(tokens), request), Sampling(max_tokens=most), **more)


def scoring(monkeypatch: pytest.MonkeyPatch, **sizes: int) -> tuple[Batch, Counting]:
    monkeypatch.setattr(TokenBytes, "of", lambda _, token: b"%d" % token)
    return batch(**sizes, kind=Scoring)


def test_a_prompt_that_is_scored_is_computed_whole_though_it_is_cached(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made, network = scoring(monkeypatch)
    tokens = different(1, 11)
    made.add(new("a", tokens))
    made.step(100)
    made.add(scored("b", tokens))
    made.add(scored("c", tokens))
    emitted = {one.id: one for one in made.step(100).emitted}
    assert network.steps[1][1:] == [("b", 0, 11), ("c", 0, 11)]
    for id in "bc":
        assert [one.token for one in emitted[id].prompt_logprobs] == tokens
        values = [one.logprob for one in emitted[id].prompt_logprobs]
        assert values == [None, *(-float(place) for place in range(1, 11))]
        assert emitted[id].prompt_logprobs[1].top[0].rank == 1
        assert emitted[id].cached == 0
    assert not any(one.prompt_logprobs for one in made.step(100).emitted)
    made.add(scored("d", tokens, emitted=(3,)))  # its prompt was told before it was preempted
    [*_, last] = made.step(100).emitted
    assert (last.id, list(last.prompt_logprobs)) == ("d", [])
    assert network.steps[3][-1] == ("d", 8, 12)


def test_a_step_scores_no_more_places_than_its_logits_may_take(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(f"{Batch.__module__}._SCORED_BYTES", 4 * Counting.vocabulary * 6)
    made, network = scoring(monkeypatch)
    for id, number in (("a", 1), ("b", 2)):
        made.add(scored(id, different(number, 10)))
    made.add(new("c", different(3, 10)))
    for _ in range(3):
        made.step(100)
    prompts = [[(id, a, b) for id, a, b in step if b <= 10] for step in network.steps]
    assert prompts == [[("a", 0, 6), ("c", 0, 10)], [("a", 6, 10), ("b", 0, 2)], [("b", 2, 8)]]


def test_a_prompt_that_gave_its_blocks_back_is_not_scored_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made, network = scoring(monkeypatch, blocks=4, context=16)
    made.add(new("a", different(1, 7), most=8))
    made.add(scored("b", different(2, 9)))
    found = []
    while not found:
        found = [one for one in made.step(4).emitted if one.id == "b"]
    assert sum(start == 0 for step in network.steps for id, start, _ in step if id == "b") > 1
    assert [one.logprob for one in found[0].prompt_logprobs[1:]] == [-float(n) for n in range(1, 9)]


def test_no_token_comes_where_none_is_wanted_but_the_prompts_scores(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made, _ = scoring(monkeypatch)
    made.add(scored("a", different(1, 6), most=0))
    [only] = made.step(100).emitted
    assert (list(only.tokens), only.text, only.finish) == ([], "", "length")
    assert len(only.prompt_logprobs) == 6
    assert made.step(100).free_blocks == 32


def test_the_youngest_gives_its_blocks_to_the_oldest_and_is_computed_again() -> None:
    both = new("a", different(1, 7), most=6), new("b", different(2, 7), most=6)
    made, network = batch(*both, blocks=4, context=16)
    found: dict[str, list[int]] = {"a": [], "b": []}
    while any(len(tokens) < 6 for tokens in found.values()):
        for emitted in made.step(16).emitted:
            found[emitted.id] += emitted.tokens
    assert found == {"a": list(range(7, 13)), "b": list(range(7, 13))}
    again = [(start, end) for step in network.steps[1:] for id, start, end in step if id == "b"]
    assert any(end - start > 1 for start, end in again)
    assert made.step(16).free_blocks == 4


def test_what_ended_leaves_all_blocks_free_and_an_id_twice_harms_neither() -> None:
    made, _ = batch(new("a", different(1, 9), most=1), blocks=8)
    step = made.step(100)
    assert [emitted.finish for emitted in step.emitted] == ["length"]
    assert step.free_blocks == 8
    made, _ = batch(new("a", [1]), new("a", [2]))
    refused, kept = made.step(100).emitted
    assert isinstance(refused.error, InvalidInput)
    assert kept.tokens == (1,)


def test_a_sequence_whose_numbers_are_broken_ends_alone_and_nobody_finds_its_blocks() -> None:
    made, network = batch(new("a", different(1, 9)), new("b", different(2, 9)))
    network.broken = {"a"}
    first, second = made.step(100).emitted
    assert isinstance(first.error, Permanent)
    assert second.tokens == (9,)
    assert len(network.cleared) == 3
    made.add(new("c", different(1, 9)))
    assert made.step(100).emitted[-1].cached == 0


def test_sequences_that_the_model_can_not_serve_end_alone() -> None:
    wrong = {"empty": [], "unknown": [1000], "negative": [-1], "long": [1] * 16}
    given = [new(id, tokens) for id, tokens in {**wrong, "fine": [1]}.items()]
    emitted = batch(*given, context=16)[0].step(100).emitted
    errors = {one.id: isinstance(one.error, InvalidInput) for one in emitted}
    assert errors == {**dict.fromkeys(wrong, True), "fine": False}


class InBytes:
    """Tokenizer whose tokens 0 to 255 are bytes, and network that says one text."""

    vocabulary = 1000

    def __init__(self, text: str) -> None:
        self._left = list(text.encode())

    def decode(self, tokens: Sequence[int], **_: bool) -> str:
        return bytes(tokens).decode("utf-8", "replace")

    def next_tokens(self, chunks: Sequence[Chunk]) -> list[Choice]:
        return [Choice(self._left.pop(0), -0.5) for chunk in chunks if chunk.completes]

    def clear(self, blocks: Sequence[int]) -> None:
        pass


def test_texts_of_tokens_make_up_the_text_and_the_stop_string_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(TokenBytes, "of", lambda _, token: bytes([token]))
    said = InBytes("a猫b|c")
    made = Batch(said, said, frozenset([999]), Capacity(32, BLOCK, 8, 64), NO_GRAMMARS)
    sampling = Sampling(max_tokens=9, logprobs=0, stop=("x", "|"))
    made.add(NewSequence("a", Prompt([65], 1, GenerationRequest()), sampling))
    emitted = [one for _ in range(6) for one in made.step(8).emitted]
    assert [one.logprobs[0].text for one in emitted] == ["a", "", "", "猫", "b", "|"]
    assert "".join(one.text for one in emitted) == "a猫b"
    assert (emitted[-1].finish, emitted[-1].stopped_by) == ("stop", "|")


def published(pool: BlockPool, *names: bytes) -> list[int]:
    """Blocks that are taken, and are to be found by these digests."""
    blocks = pool.take(len(names)) or []
    for block, digest in zip(blocks, names, strict=True):
        pool.publish(block, digest)
    return blocks


def chain(tokens: list[int], salt: str = "") -> list[bytes]:
    return list(digests(tokens, 2, seed_digest(salt)))


def test_a_digest_stands_for_all_before_it_and_a_prefix_is_found_as_far_as_known() -> None:
    assert len(chain([1, 2, 3, 4, 5])) == 2
    assert chain([1, 2, 3, 4])[0] == chain([1, 2, 9, 9])[0]
    assert chain([1, 2, 3, 4])[1] != chain([9, 9, 3, 4])[1]
    assert chain([1, 2], "a") != chain([1, 2], "b")
    pool = BlockPool(4)
    blocks = published(pool, *chain([1, 2, 3, 4, 5, 6]))
    assert pool.find(chain([1, 2, 3, 4, 7, 8])) == blocks[:2]
    assert pool.find(chain([7, 2])) == []


def test_blocks_of_nobody_are_free_and_still_found_but_the_one_of_padding_is_never_taken() -> None:
    pool = BlockPool(2)
    blocks = [*published(pool, b"x"), *(pool.take(1) or [])]
    pool.release(blocks)
    assert pool.free == 2
    assert pool.find([b"x"]) == blocks[:1]
    assert pool.free == 1
    assert PADDING not in (BlockPool(3).take(3) or [PADDING])


def test_a_block_is_free_once_all_gave_it_back_and_a_forgotten_one_is_found_by_nobody() -> None:
    pool = BlockPool(1)
    [block] = published(pool, b"x")
    assert pool.find([b"x"]) == [block]
    pool.release([block])
    assert pool.take(1) is None
    pool.release([block])
    assert pool.take(1) == [block]
    pool = BlockPool(2)
    blocks = published(pool, b"x", b"y")
    pool.find([b"x"])
    pool.release(blocks)
    assert pool.forget(blocks) == blocks[1:]
    assert pool.find([b"x"]) == pool.find([b"y"]) == []
    pool.release(blocks[:1])
    assert pool.free == 2


def test_the_end_of_what_was_used_longest_ago_is_evicted_first() -> None:
    pool = BlockPool(3)
    old, new = published(pool, b"o1", b"o2"), published(pool, b"n")
    pool.release(old)
    pool.release(new)
    assert pool.take(1) == old[1:]
    assert pool.find([b"o1", b"o2"]) == old[:1]
    assert pool.find([b"n"]) == new


@given(st.lists(st.lists(st.integers(0, 2), max_size=9), max_size=12))
def test_no_block_is_lost_or_taken_twice(prompts: list[list[int]]) -> None:
    pool, held = BlockPool(6), list[list[int]]()
    for tokens in prompts:
        known = chain(tokens)
        found = pool.find(known)
        taken = pool.take(len(known) - len(found))
        if taken is None:
            pool.release(found)
            while held:
                pool.release(held.pop())
            continue
        assert not {*taken} & {block for blocks in held for block in blocks}
        blocks = found + taken
        for block, digest in zip(blocks, known, strict=True):
            pool.publish(block, digest)
        held.append(blocks)
        assert pool.free == 6 - len({block for blocks in held for block in blocks})
    for blocks in held:
        pool.release(blocks)
    assert pool.free == 6


def test_a_sequence_ends_by_its_own_tokens_and_the_models_unless_those_are_ignored() -> None:
    """The token after n others is n; the model's own end is 5."""
    cases: list[tuple[dict[str, Any], list[int], str, str]] = [
        ({}, [3, 4, 5], "xx", "stop"),
        ({"include_stop_str_in_output": True}, [3, 4, 5], "xxx", "stop"),
        ({"ignore_eos": True}, [3, 4, 5, 6, 7], "xxxxx", "length"),
        ({"stop_token_ids": (4,)}, [3, 4], "x", "stop"),
        ({"stop_token_ids": (6,), "ignore_eos": True}, [3, 4, 5, 6], "xxx", "stop"),
    ]
    for (fields, tokens, text, finish), case in each(cases):
        with case:
            capacity = Capacity(32, BLOCK, 8, 64)
            made = Batch(Counting(), NoText(), frozenset([5]), capacity, NO_GRAMMARS)
            made.add(replace(new("a", [0, 1, 2]), sampling=Sampling(max_tokens=5, **fields)))
            emitted = [one for _ in tokens for one in made.step(64).emitted]
            assert [token for one in emitted for token in one.tokens] == tokens
            assert "".join(one.text for one in emitted) == text
            assert emitted[-1].finish == finish


SAID = "Grüße aus Köln 猫 und 👩‍🚀, naïve — ok"


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Any:
    from tokenizers import Tokenizer

    folder = tmp_path_factory.mktemp("tokenizer")
    tiny_llama.save_tokenizer(folder)
    return Tokenizer.from_file(str(folder / "tokenizer.json"))


def test_characters_of_several_tokens_come_whole_or_cut_at_the_end(
    tokenizer: Any,
) -> None:
    tokens = tokenizer.encode(SAID).ids
    assert len(tokens) > len(SAID)
    stream = Detokenizer(tokenizer, tokenizer.encode("before ").ids)
    pieces = [stream.add(token) for token in tokens]
    assert "".join(pieces) == SAID
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
    stream = Detokenizer(tokenizer, [], skips_special=False)
    texts = [stream.add(token) for token in [0, *tokenizer.encode("a").ids, 1]]
    assert "".join(texts) == "<|im_start|>a<|im_end|>"
    [half] = set(tokenizer.encode("猫").ids[:1])
    stream = Detokenizer(tokenizer, [])
    assert any(stream.add(half) for _ in range(40))


def test_tokens_have_the_bytes_of_their_vocabulary(tokenizer: Any) -> None:
    spelled = TokenBytes(tokenizer)
    tokens = tokenizer.encode(SAID).ids
    assert b"".join(map(spelled.of, tokens)) == SAID.encode()
    assert [spelled.of(token) for token in (0, 1)] == [b"<|im_start|>", b"<|im_end|>"]
    assert spelled.of(10**6) == b""


def test_tokens_of_sentencepiece_have_their_space_and_their_bytes() -> None:
    from tokenizers import Tokenizer, decoders, models

    words = {"<0xE7>": 0, "\u2581The": 1, "s": 2, "<s>": 3}
    tokenizer = Tokenizer(models.BPE(words, [], byte_fallback=True))
    tokenizer.add_special_tokens(["<s>"])
    parts = [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()]
    tokenizer.decoder = decoders.Sequence([*parts, decoders.Strip(" ", 1, 0)])
    spelled = TokenBytes(tokenizer)
    assert [spelled.of(token) for token in range(4)] == [b"\xe7", b" The", b"s", b"<s>"]
    pieces = Tokenizer(models.WordLevel({"one": 0, "[UNK]": 1}, unk_token="[UNK]"))
    assert TokenBytes(pieces).of(0) == b"one"


def test_a_stop_string_ends_the_text_before_it_and_what_becomes_none_is_released() -> None:
    stops = StopStrings(["\nUser:", "END"])
    assert [stops.add(text) for text in ["Hello", "\nUs", "er: hi"]] == ["Hello", "", ""]
    assert stops.matched == "\nUser:"
    stops = StopStrings(["abcd"])
    assert [stops.add(text) for text in ["xab", "c", "x"]] == ["x", "", "abcx"]
    assert stops.add("ab") == ""
    assert stops.finish() == "ab"
    assert not stops.matched


def test_a_stop_string_is_part_of_the_text_where_that_is_asked_for() -> None:
    stops = StopStrings(["END"], returned=True)
    assert [stops.add(text) for text in ["a E", "N", "D b"]] == ["a ", "", "END"]
    assert stops.matched == "END"


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
