"""Made problems of arithmetic, with their answers in steps, of a number of words."""

from random import Random

from ops.bench.data.sentences import lengthened, split, word

_QUESTION = "How many {things} does {name} have in the end?"
_GAINS = ("buys", "finds", "makes", "borrows")
_LOSSES = ("sells", "loses", "donates", "mails")


def problem(question_words: int, answer_words: int, draw: Random) -> dict[str, str]:
    """Returns a question (of at least 15 words) and its answer (of at least five)."""
    name, things = word("names", draw), word("things", draw)
    return {
        "question": _question(name, things, question_words, draw),
        "answer": _answer(name, things, answer_words, draw),
    }


def _question(name: str, things: str, words: int, draw: Random) -> str:
    last = _QUESTION.format(things=things, name=name)
    sizes = split(words - len(last.split()), 12)
    verbs = ["has", *(draw.choice(_GAINS + _LOSSES) for _ in sizes[1:])]
    told = [
        lengthened(f"{name} {verb} {draw.randint(2, 90)} {things}", size, draw)
        for verb, size in zip(verbs, sizes, strict=True)
    ]
    return " ".join([f"{sentence}." for sentence in told] + [last])


def _answer(name: str, things: str, words: int, draw: Random) -> str:
    count, lines = draw.randint(2, 90), list[str]()
    for size in split(words - 2, 15):
        more = draw.randint(2, 90)
        step, count = f"{count}+{more}", count + more
        line = f"{name} has {step}=<<{step}={count}>>{count}"
        lines.append(lengthened(f"{line} {things}" if size > 3 else line, size, draw))
    return "\n".join([*lines, f"#### {count}"])
