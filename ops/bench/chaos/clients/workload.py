"""Items of a job: a function of its tag, so that nothing has to be stored to check them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import exp, log
from random import Random
from typing import Any

CHAT = "chat"
"""Model that generates: the words of its prompt, a token each."""

MOST_ITEMS = 20_000
_MOODY_ITEMS = 2000
_POISONED = 0.1  # share of the moody jobs with an item that kills workers until it is alone
_SHARES = {"echo": 0.27, "shout": 0.45, "moody": 0.18, CHAT: 0.1}
_CHAT_ITEMS = 40
ITEM_TOKENS = 80
"""Tokens of the prompt of each item of CHAT, and of what it generates."""


@dataclass(frozen=True, slots=True)
class Work:
    """Items of one job."""

    tag: str
    model: str
    total: int
    marks: Mapping[int, str] = field(default_factory=dict)  #: seq -> how that item fails

    def text(self, seq: int) -> str:
        """Text of an item's input."""
        if self.model == CHAT:
            return words(f"{self.tag}-{seq}", ITEM_TOKENS)
        mark = self.marks.get(seq)
        return f"{self.tag} é {seq}" + (f"!{mark}" if mark else "")

    def items(self) -> Iterator[Any]:
        """Items as they are submitted."""
        texts = map(self.text, range(self.total))
        if self.model == CHAT:
            return ({"input": generation_input(text)} for text in texts)
        return texts

    def shown(self, output: Any) -> Any:
        """Returns what is compared of an output; of a generated one: text, and billed tokens."""
        if self.model != CHAT:
            return output
        usage = output["usage"]
        return output["choices"][0]["text"], usage["prompt_tokens"], usage["completion_tokens"]

    def expected(self, seq: int) -> tuple[str, Any]:
        """Returns (outcome, output as shown, or error code) as a plain loop computes them."""
        match self.marks.get(seq):
            case "raise":
                return "failed", "engine_error"
            case "exit" | "segfault":
                return "failed", "worker_lost"
        text = self.text(seq)
        if self.model == CHAT:
            return "succeeded", (text, ITEM_TOKENS, ITEM_TOKENS)
        return "succeeded", text if self.model == "echo" else text.upper()


def words(tag: str, count: int) -> str:
    """Text of so many words, none of them twice."""
    return " ".join(f"{tag}-{n}" for n in range(count))


def generation_input(text: str) -> dict[str, Any]:
    """Input for which CHAT generates this text, and no more."""
    return {"prompt": text, "max_tokens": len(text.split())}


def invent(tag: str, dice: Random) -> Work:
    """Random work of 1 to 20,000 items (log-uniform), sometimes with items that fail."""
    model = dice.choices(list(_SHARES), list(_SHARES.values()))[0]
    most = {"moody": _MOODY_ITEMS, CHAT: _CHAT_ITEMS}.get(model, MOST_ITEMS)
    total = min(most, int(exp(dice.uniform(0, log(most + 1)))))
    return Work(tag, model, total, _marks(total, dice) if model == "moody" else {})


def _marks(total: int, dice: Random) -> dict[int, str]:
    marks = dict.fromkeys(_some(total, 3, dice), "raise")
    marks |= dict.fromkeys(_some(total, 5, dice), "flaky")
    if dice.random() < _POISONED:
        marks[dice.randrange(total)] = dice.choice(["exit", "segfault"])
    return marks


def _some(total: int, most: int, dice: Random) -> list[int]:
    return [dice.randrange(total) for _ in range(dice.randint(0, most))]
