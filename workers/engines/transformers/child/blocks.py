"""Pool of the KV cache's blocks; full ones are found again by their tokens and all before them."""

import hashlib
from array import array
from collections import OrderedDict
from collections.abc import Iterator, Sequence

PADDING = 0
"""Block that is never written: it pads tables of sequences that are shorter than others."""

_DIGEST_BYTES = 16


def seed_digest(salt: str) -> bytes:
    """Returns the digest that the first block's follows."""
    return hashlib.blake2b(salt.encode(), digest_size=_DIGEST_BYTES).digest()


def digests(tokens: Sequence[int], block_tokens: int, chained: bytes) -> Iterator[bytes]:
    """Yields the digest of each full block: of its tokens and the digest before it."""
    for end in range(block_tokens, len(tokens) + 1, block_tokens):
        block = array("q", tokens[end - block_tokens : end])
        chained = hashlib.blake2b(chained + block.tobytes(), digest_size=_DIGEST_BYTES).digest()
        yield chained


class BlockPool:
    """Blocks 1 to `count`: free, in use by sequences, or cached, which means that nobody uses them
    and their content may be of use again. Those cached longest are evicted first."""

    def __init__(self, count: int) -> None:
        self._free = list(range(count, PADDING, -1))
        self._users = [0] * (count + 1)
        self._digests: dict[int, bytes] = {}
        self._by_digest: dict[bytes, int] = {}
        self._cached: OrderedDict[int, None] = OrderedDict()

    @property
    def free(self) -> int:
        """Blocks that can be taken, cached ones included."""
        return len(self._free) + len(self._cached)

    def find(self, wanted: Sequence[bytes]) -> list[int]:
        """Takes the blocks of the longest prefix of these digests that is in the pool."""
        found = []
        for digest in wanted:
            if (block := self._by_digest.get(digest)) is None:
                break
            self._cached.pop(block, None)
            self._users[block] += 1
            found.append(block)
        return found

    def take(self, count: int) -> list[int] | None:
        """Takes so many blocks to write to; None, and no block, where there are fewer."""
        if count > self.free:
            return None
        return [self._take() for _ in range(count)]

    def publish(self, block: int, digest: bytes) -> None:
        """Lets others find a block, which is full now, unless they find another one like it."""
        if digest not in self._by_digest:
            self._by_digest[digest] = block
            self._digests[block] = digest

    def release(self, blocks: Sequence[int]) -> None:
        """Gives back a sequence's blocks, in their order: the last ones are evicted first."""
        for block in reversed(blocks):
            self._users[block] -= 1
            if self._users[block]:
                continue
            if block in self._digests:
                self._cached[block] = None
            else:
                self._free.append(block)

    def forget(self, blocks: Sequence[int]) -> list[int]:
        """Lets nobody find these blocks any more; returns those that nobody uses."""
        for block in blocks:
            if (digest := self._digests.pop(block, None)) is not None:
                del self._by_digest[digest]
            if block in self._cached:
                del self._cached[block]
                self._free.append(block)
        return [block for block in blocks if not self._users[block]]

    def _take(self) -> int:
        block = self._free.pop() if self._free else self._evict()
        self._users[block] = 1
        return block

    def _evict(self) -> int:
        block, _ = self._cached.popitem(last=False)
        del self._by_digest[self._digests.pop(block)]
        return block
