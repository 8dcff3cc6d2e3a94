"""Control tokens of a chat template, told apart from the same texts in what users say.

Those that the template writes are marks in its text, with a number that nobody can guess. All that
a conversation holds is tokenized as text, also where it spells a control token.
"""

import json
import re
import secrets
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer

_BEGIN, _END = "\ue000", "\ue001"  # private use: no template splits or changes these
_UNKNOWN = "\U0010fffd"  # private use: the token that it has, if any, tells nothing
_DIGITS = 20  # of a mark's secret
_PART = 4  # digits of it that an error may not have
_UNTOLD = "messages don't fit the model's chat template"
_WORD = re.compile(r"[\w\s]+")
_IN_BARS = re.compile(r"<[|｜].+[|｜]>")  # DeepSeek's bar


class ControlTokens:
    """Added tokens of one tokenizer that a template writes, or could.

    file: of the tokenizer; source: text of the template.
    """

    def __init__(self, tokenizer: Tokenizer, file: Path, source: str) -> None:
        self._file = file
        added = tokenizer.get_added_tokens_decoder().items()
        controls = {id: one.content for id, one in added if _is_control(one, source)}
        unknown = tokenizer.encode(_UNKNOWN, add_special_tokens=False).ids
        self._texts = {id: text for id, text in controls.items() if id not in unknown}
        self._secret = f"{_BEGIN}{secrets.randbelow(10**_DIGITS):0{_DIGITS}}:"
        self._marks = {text: f"{self._secret}{id}{_END}" for id, text in self._texts.items()}
        longest_first = sorted(self._marks, key=len, reverse=True)
        self._any = re.compile("|".join(map(re.escape, longest_first)) or "(?!)")
        self._mark = re.compile(rf"{self._secret}(\d+){_END}")

    def marked(self, text: str) -> str:
        """Returns a text of the template with a mark for each control token in it."""
        return self._any.sub(lambda found: self._marks[found[0]], text)

    def unmarked(self, text: str) -> tuple[str, list[int]]:
        """Returns a text with the control tokens that its marks stand for, and their ids."""
        parts = self._mark.split(text)
        ids = [int(id) for id in parts[1::2]]
        parts[1::2] = [self._texts[id] for id in ids]
        return "".join(parts), ids

    def told(self, error: str) -> str:
        """Returns an error of a template without its marks, of which nothing may be left: one that
        was escaped or cut is none that can be found."""
        plain, _ = self.unmarked(error)
        digits = self._secret[1:-1]
        parts = (digits[n : n + _PART] for n in range(_DIGITS - _PART + 1))
        return _UNTOLD if any(part in plain for part in parts) else plain

    def among(self, ids: Iterable[int]) -> list[int]:
        """Returns those of a text's tokens that are control tokens, in order."""
        return [id for id in ids if id in self._texts]

    def first_in(self, text: str) -> str:
        """Returns the first control token that a text spells; "": there is none."""
        found = self._any.search(text)
        return found[0] if found else ""

    def encode(self, text: str) -> Sequence[int]:
        """Tokenizes a marked text: its marks alone are control tokens. Raises ValueError where the
        tokenizer makes one of another text."""
        ids: Sequence[int] = self._renamed.encode(text, add_special_tokens=False).ids
        plain, written = self.unmarked(text)
        if self.among(ids) != written:
            spelled = self.first_in(plain)
            raise ValueError(
                f"messages spell a control token that the tokenizer takes for no text: leave out "
                f"{spelled!r} and its like"
            )
        return ids

    @cached_property
    def _renamed(self) -> Tokenizer:
        """Tokenizer whose control tokens have the names of their marks, so that their texts are
        like any other.

        It is made when a conversation first needs it: a large vocabulary takes a second.
        """
        content = json.loads(self._file.read_bytes())
        model = content["model"]
        _rename(model, self._marks)
        for added in content["added_tokens"]:
            added["content"] = self._marks.get(added["content"], added["content"])
        content |= {"truncation": None, "padding": None}
        return Tokenizer.from_str(json.dumps(content))


def _is_control(token: AddedToken, source: str) -> bool:
    """Returns True for a special token, and for another one that the template writes; words and
    blanks that were added to a vocabulary are text."""
    text = token.content
    if not text.strip():
        return False
    if token.special or _IN_BARS.fullmatch(text):
        return True
    return text in source and not _WORD.fullmatch(text)


def _rename(model: dict[str, Any], names: dict[str, str]) -> None:
    """Renames tokens of a model in place, and drops the merges of which they are made."""
    vocabulary, unknown = model["vocab"], model.get("unk_token")
    if isinstance(vocabulary, dict):
        model["vocab"] = {names.get(text, text): id for text, id in vocabulary.items()}
    else:
        model["vocab"] = [[names.get(text, text), score] for text, score in vocabulary]
    if unknown in names:
        model["unk_token"] = names[unknown]
    if "merges" in model:
        pairs = [one if isinstance(one, list) else one.split(" ") for one in model["merges"]]
        model["merges"] = [
            [one, other]
            for one, other in pairs
            if names.keys().isdisjoint((one, other, one + other))
        ]
