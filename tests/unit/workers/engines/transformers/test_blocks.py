"""Pool of blocks: what is shared, what is evicted, and that no block is ever lost."""

from hypothesis import given
from hypothesis import strategies as st

from workers.engines.transformers.child.blocks import PADDING, BlockPool, digests, seed_digest


def published(pool: BlockPool, *names: bytes) -> list[int]:
    """Blocks that are taken, and are to be found by these digests."""
    blocks = pool.take(len(names)) or []
    for block, digest in zip(blocks, names, strict=True):
        pool.publish(block, digest)
    return blocks


def chain(tokens: list[int], salt: str = "") -> list[bytes]:
    return list(digests(tokens, 2, seed_digest(salt)))


def test_a_digest_stands_for_all_tokens_before_it_and_the_salt() -> None:
    assert len(chain([1, 2, 3, 4, 5])) == 2
    assert chain([1, 2, 3, 4])[0] == chain([1, 2, 9, 9])[0]
    assert chain([1, 2, 3, 4])[1] != chain([9, 9, 3, 4])[1]
    assert chain([1, 2], "a") != chain([1, 2], "b")


def test_the_block_of_padding_is_never_taken() -> None:
    assert PADDING not in (BlockPool(3).take(3) or [PADDING])


def test_a_prefix_is_found_up_to_its_first_unknown_block() -> None:
    pool = BlockPool(4)
    blocks = published(pool, *chain([1, 2, 3, 4, 5, 6]))
    assert pool.find(chain([1, 2, 3, 4, 7, 8])) == blocks[:2]
    assert pool.find(chain([7, 2])) == []


def test_blocks_of_nobody_are_free_and_still_found() -> None:
    pool = BlockPool(2)
    blocks = [*published(pool, b"x"), *(pool.take(1) or [])]
    pool.release(blocks)
    assert pool.free == 2
    assert pool.find([b"x"]) == blocks[:1]
    assert pool.free == 1


def test_a_block_of_two_sequences_is_free_once_both_gave_it_back() -> None:
    pool = BlockPool(1)
    [block] = published(pool, b"x")
    assert pool.find([b"x"]) == [block]
    pool.release([block])
    assert pool.take(1) is None
    pool.release([block])
    assert pool.take(1) == [block]


def test_the_end_of_what_was_used_longest_ago_is_evicted_first() -> None:
    pool = BlockPool(3)
    old, new = published(pool, b"o1", b"o2"), published(pool, b"n")
    pool.release(old)
    pool.release(new)
    assert pool.take(1) == old[1:]
    assert pool.find([b"o1", b"o2"]) == old[:1]
    assert pool.find([b"n"]) == new


def test_a_forgotten_block_is_found_by_nobody() -> None:
    pool = BlockPool(2)
    blocks = published(pool, b"x", b"y")
    pool.find([b"x"])
    pool.release(blocks)
    assert pool.forget(blocks) == blocks[1:]
    assert pool.find([b"x"]) == pool.find([b"y"]) == []
    pool.release(blocks[:1])
    assert pool.free == 2


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
