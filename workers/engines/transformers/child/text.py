"""Text of a sequence while its tokens arrive: whole characters, up to a stop string; and the bytes
of each token."""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

_CONTEXT = 6  # tokens of the prompt: some decoders join a token to the one before it
_MOST_UNDECODED = 16  # tokens; longer ones are no beginning of a character, but invalid bytes
_INCOMPLETE = "\ufffd"  # what a decoder gives for the first bytes of a character
_BYTE_LEVEL, _FALLBACK, _SPACE = "ByteLevel", "ByteFallback", "\u2581"  # in a decoder's settings


def _byte_level() -> dict[str, int]:
    """Returns the bytes by the characters in which vocabularies of bytes write them, since GPT-2's:
    those that can't be seen as the characters from U+0100 on."""
    seen = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    unseen = [byte for byte in range(0x100) if byte not in seen]
    shifted = {chr(0x100 + n): byte for n, byte in enumerate(unseen)}
    return {chr(byte): byte for byte in seen} | shifted


_BYTES = _byte_level()


class Detokenizer:
    """Decodes tokens one at a time; `tokenizer` is one of the library tokenizers. Special tokens
    have no text, unless `skips_special` is false."""

    def __init__(
        self, tokenizer: Any, prompt: Sequence[int], *, skips_special: bool = True
    ) -> None:
        self._tokenizer, self._skips_special = tokenizer, skips_special
        self._tokens = list(prompt[-_CONTEXT:])
        self._decoded = len(self._tokens)  # of `_tokens`, whose text was returned

    def add(self, token: int) -> str:
        """Returns the text that became certain; "" within a character of several tokens."""
        self._tokens.append(token)
        text = self._pending()
        undecoded = len(self._tokens) - self._decoded
        if text.endswith(_INCOMPLETE) and undecoded < _MOST_UNDECODED:
            return ""
        if text or undecoded >= _MOST_UNDECODED:
            self._tokens = self._tokens[-max(undecoded, _CONTEXT) :]
            self._decoded = len(self._tokens)
        return text

    def finish(self) -> str:
        """Returns the text of all tokens that are left."""
        return self._pending()

    def _pending(self) -> str:
        before, text = self._decode(self._tokens[: self._decoded]), self._decode(self._tokens)
        return text[len(before) :] if len(text) > len(before) else ""

    def _decode(self, tokens: Sequence[int]) -> str:
        text: str = self._tokenizer.decode(tokens, skip_special_tokens=self._skips_special)
        return text


class TokenBytes:
    """Bytes of single tokens; `tokenizer` is one of the library tokenizers."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer

    def of(self, token: int) -> bytes:
        """Returns the bytes of a token, also those of a part of a character; none of a token that
        the tokenizer doesn't know."""
        if token in self._added:
            return str(self._added[token].content).encode()
        written = self._tokenizer.id_to_token(token)
        if written is None:
            return b""
        if _BYTE_LEVEL in self._decoder and all(char in _BYTES for char in written):
            return bytes(_BYTES[char] for char in written)
        if _FALLBACK in self._decoder and len(written) == 6 and written.startswith("<0x"):
            return bytes.fromhex(written[3:5])
        if _SPACE in self._decoder:  # of SentencePiece; decoding one token alone would strip it
            return str(written).replace(_SPACE, " ").encode()
        return str(self._tokenizer.decode([token], skip_special_tokens=False)).encode()

    @cached_property
    def _added(self) -> dict[int, Any]:
        added: dict[int, Any] = self._tokenizer.get_added_tokens_decoder()
        return added

    @cached_property
    def _decoder(self) -> str:
        """Settings of the decoder, as JSON; "": there is none."""
        decoder = self._tokenizer.decoder
        return decoder.__getstate__().decode() if decoder else ""


class StopStrings:
    """Holds text back as long as it may become one of the strings. The one that is found ends the
    text; it is `returned` as part of it or not."""

    def __init__(self, stops: Sequence[str], *, returned: bool = False) -> None:
        self._stops, self._returned = [stop for stop in stops if stop], returned
        self._held = ""
        self.matched: str | None = None  #: string that was found; nothing comes after it

    def add(self, text: str, *, may_end: bool = True) -> str:
        """Returns the text that is final. With `may_end` false it may hold stop strings."""
        if not may_end:
            return text
        held = self._held + text
        found = {stop: place for stop in self._stops if (place := held.find(stop)) >= 0}
        if found:
            self.matched, self._held = min(found, key=found.__getitem__), ""
            end = found[self.matched]
            return held[: end + len(self.matched) if self._returned else end]
        size = max((_overlap(held, stop) for stop in self._stops), default=0)
        self._held = held[len(held) - size :]
        return held[: len(held) - size]

    def finish(self) -> str:
        """Returns what is held back, once no more text comes."""
        held, self._held = self._held, ""
        return held


def _overlap(text: str, stop: str) -> int:
    """Returns the length of the longest end of the text with which the string may begin."""
    for size in range(min(len(stop) - 1, len(text)), 0, -1):
        if text.endswith(stop[:size]):
            return size
    return 0
