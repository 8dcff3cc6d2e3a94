"""Lengths of made texts: those of real ones, by their quantiles."""

from collections.abc import Mapping
from random import Random

import numpy as np

#: Words, by the share of texts that have at most so many.
Quantiles = Mapping[float, float]

#: Of gsm8k's test set: questions, and answers with their steps.
QUESTIONS: Quantiles = {
    0: 15, 0.05: 24, 0.1: 27, 0.25: 33, 0.5: 43, 0.75: 55, 0.9: 70, 0.95: 82, 1: 164,
}  # fmt: skip
ANSWERS: Quantiles = {
    0: 5, 0.05: 18, 0.1: 23, 0.25: 33, 0.5: 49, 0.75: 68, 0.9: 89, 0.95: 105, 1: 173,
}  # fmt: skip
#: Of film reviews in NLTK's corpus.
REVIEWS: Quantiles = {
    0: 219, 0.05: 305, 0.1: 371, 0.25: 498, 0.5: 634, 0.75: 818, 0.9: 995, 0.95: 1094, 1: 2032,
}  # fmt: skip
#: Of sentences of the STS benchmark's test set.
SENTENCES: Quantiles = {
    0: 2, 0.05: 5, 0.1: 5, 0.25: 6, 0.5: 8, 0.75: 12, 0.9: 17, 0.95: 21, 1: 30,
}  # fmt: skip


def spread(quantiles: Quantiles, count: int, draw: Random) -> list[int]:
    """Returns so many lengths in a random order, spread evenly over the shares."""
    shares = (np.arange(count) + 0.5) / count
    found = [int(n) for n in np.interp(shares, list(quantiles), list(quantiles.values())).round()]
    draw.shuffle(found)
    return found
