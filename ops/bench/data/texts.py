"""Texts of the benchmarks: those of a folder of real data, else made ones of the same lengths."""

import csv
import json
from pathlib import Path
from random import Random
from typing import Any

from ops.bench.data import lengths, sentences
from ops.bench.data.folder import real_file
from ops.bench.data.problems import problem

_PROBLEMS, _REVIEWS, _PAIRS = 1319, 200, 1379  #: made; as many as real ones


def questions() -> list[str]:
    """Questions of gsm8k, or made problems of arithmetic: about 60 tokens each."""
    return [row["question"] for row in _problems()]


def mixed() -> list[str]:
    """Short and long texts: questions and answers of problems, then film reviews."""
    short = [row[key] for row in _problems() for key in ("question", "answer")]
    return [*short, *_reviews()]


def pairs() -> tuple[list[tuple[str, str]], list[float]]:
    """Pairs of sentences, and how similar people found each; no such scores of made ones."""
    if path := real_file("stsb-en-test.csv"):
        with path.open(newline="", encoding="utf-8") as file:
            rows = list(csv.reader(file))
        return [(first, second) for first, second, _ in rows], [float(row[2]) for row in rows]
    draw = Random("pairs")
    sizes = lengths.spread(lengths.SENTENCES, _PAIRS, draw)
    firsts = [sentences.caption(size, draw) for size in sizes]
    return [(first, sentences.reword(first, draw)) for first in firsts], []


def published_vector() -> tuple[str, list[float]] | None:
    """Returns a text and its vector of all-MiniLM-L6-v2 as published; None where it isn't here."""
    if path := real_file("minilm_golden_triton.json"):
        golden = json.loads(path.read_text())
        return golden["input"], golden["embedding"]
    return None


def _problems() -> list[dict[str, str]]:
    if path := real_file("gsm8k_test.jsonl"):
        return _rows(path)
    draw = Random("problems")
    asked = lengths.spread(lengths.QUESTIONS, _PROBLEMS, draw)
    answered = lengths.spread(lengths.ANSWERS, _PROBLEMS, draw)
    return [problem(*words, draw) for words in zip(asked, answered, strict=True)]


def _reviews() -> list[str]:
    if path := real_file("movie_reviews_200.jsonl"):
        return [row["text"] for row in _rows(path)]
    draw = Random("reviews")
    return [
        sentences.review(words, draw) for words in lengths.spread(lengths.REVIEWS, _REVIEWS, draw)
    ]


def _rows(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text().splitlines()]
