"""Choice of tokens: distributions, bounds, penalties, and independence of the other rows."""

import math
from collections import Counter
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from jobs.models.inputs.generation import GenerationRequest, Sampling
from tests.support.cases import each
from workers.engines.generator import NewSequence, Prompt
from workers.engines.transformers.child.sampler import Sampler, scores
from workers.engines.transformers.child.sequences import Choice, LiveSequence

pytestmark = pytest.mark.heavy

SIZE = 40
END = 3


class NoText:
    def decode(self, tokens: Sequence[int], **_: bool) -> str:
        return ""


def row(prompt: Sequence[int] = (5,), output: Sequence[int] = (), **sampling: Any) -> LiveSequence:
    given = Sampling(**{"temperature": 0.0} | sampling)
    made = Prompt(list(prompt), len(prompt), GenerationRequest())
    new = NewSequence("s", made, given, emitted=tuple(output))
    return LiveSequence(new, NoText(), frozenset([END]))


def choose(logits: Any, rows: Sequence[LiveSequence]) -> list[Choice]:
    return Sampler().choose(torch.tensor(logits, dtype=torch.float32), rows)


def rising(size: int = SIZE) -> list[float]:
    return [n / 4 for n in range(size)]


def sampled(count: int, logits: Sequence[float], **sampling: Any) -> Counter[int]:
    rows = [row(seed=seed, **{"temperature": 1.0} | sampling) for seed in range(count)]
    return Counter(one.token for one in choose([list(logits)] * count, rows))


def test_temperature_zero_takes_the_likeliest_with_its_bias() -> None:
    assert [one.token for one in choose([rising(), rising()[::-1]], [row(), row()])] == [39, 0]
    assert choose([[0.0, 1.0]], [row(prompt=[0], logit_bias={0: 2.0})])[0].token == 0


def test_samples_follow_the_distribution_which_a_temperature_flattens() -> None:
    logits = [0.0, 1.0, 2.0, -50.0]
    expected = torch.tensor(logits).softmax(0).tolist()
    found = sampled(8000, logits)
    for token, share in enumerate(expected):
        assert found[token] / 8000 == pytest.approx(share, abs=0.02)
    logits = [0.0, 2.0]
    cold, hot = (sampled(2000, logits, temperature=t)[1] / 2000 for t in (0.5, 2.0))
    assert cold == pytest.approx(1 / (1 + math.exp(-4)), abs=0.03)
    assert hot == pytest.approx(1 / (1 + math.exp(-1)), abs=0.04)


def test_a_row_is_chosen_for_whatever_the_others_are() -> None:
    kinds: list[dict[str, Any]] = [
        {"temperature": 1.5, "seed": 1},
        {"temperature": 0.7, "seed": 2, "top_k": 5},
        {"temperature": 1.0, "seed": 3, "top_p": 0.5},
        {"temperature": 1.0, "seed": 4, "min_p": 0.2},
        {"temperature": 0.0, "repetition_penalty": 1.8},
    ]
    torch.manual_seed(0)
    logits = torch.randn(len(kinds), SIZE).tolist()
    together = choose(logits, [row(**kind) for kind in kinds])
    alone = [choose([one], [row(**kind)])[0] for one, kind in zip(logits, kinds, strict=True)]
    assert together == alone


def test_noise_follows_from_seed_and_position() -> None:
    flat = [[0.0] * 1000]
    one = choose(flat, [row(seed=5, temperature=1.0)])
    assert one == choose(flat, [row(prompt=(7, 8, 9), seed=5, temperature=1.0)])
    assert one != choose(flat, [row(seed=6, temperature=1.0)])
    assert one != choose(flat, [row(output=[1], seed=5, temperature=1.0)])


@pytest.mark.parametrize(
    ("sampling", "most"),
    [({"top_k": 3}, 3), ({"top_k": 1}, 1), ({"top_p": 0.5}, 3), ({"top_p": 1e-6}, 1),
     ({"min_p": 0.5}, 3), ({"min_p": 1.0}, 1), ({"top_k": 10_000}, SIZE)],
)  # fmt: skip
def test_unlikely_tokens_are_excluded(sampling: dict[str, Any], most: int) -> None:
    found = sampled(1500, rising(), **sampling)
    assert found.keys() <= set(range(SIZE - most, SIZE))
    assert len(found) >= min(most, 3)


def test_top_p_holds_where_many_tokens_are_needed() -> None:
    assert len(sampled(300, [0.0] * 5000, top_p=0.999)) > 250


def test_penalties_count_the_output() -> None:
    for (output, sampling, token), case in each(
        [
            ([], {"presence_penalty": 0.15}, 1),
            ([1], {"presence_penalty": 0.15}, 2),
            ([1, 1], {"frequency_penalty": 0.06}, 2),
            ([1, 2], {"presence_penalty": 0.3}, 3),
            ([], {"repetition_penalty": 1.3}, 2),
        ]
    ):
        with case:
            its = row(prompt=[1], output=output, **sampling)
            assert choose([[0.0, 1.0, 0.9, 0.8]], [its])[0].token == token


def test_the_end_waits_for_the_least_length() -> None:
    ends = [[9.0 if token == END else float(token) for token in range(6)]] * 2
    early = row(min_tokens=2, output=[1], logit_bias={END: 100})
    first, second = choose(ends, [early, row(min_tokens=2, output=[1, 1])])
    assert (first.token, second.token) == (5, END)
    others = row(min_tokens=2, stop_token_ids=(5, 4), ignore_eos=True)
    [third] = choose([[0.0, 1.0, 2.0, 3.0, 4.0, 5.0]], [others])
    assert third.token == END, "which doesn't end it"


class Spelling(NoText):
    """A token a character, the number of its letter."""

    def encode(self, text: str, **_: bool) -> Any:
        return SimpleNamespace(ids=[ord(char) % 32 for char in text])


def test_bad_words_are_not_completed_at_the_end_of_a_word_or_at_its_beginning() -> None:
    def chosen(output: Sequence[int]) -> int:
        given = Sampling(temperature=0.0, bad_words=("ab", "c"))
        new = NewSequence("s", Prompt([1], 1, GenerationRequest()), given, emitted=tuple(output))
        logits = [[0.0, 1.0, 3.0, 4.0, 0.5]]
        [choice] = choose(logits, [LiveSequence(new, Spelling(), frozenset([END]))])
        return choice.token

    a, b, c = 1, 2, 3
    assert chosen([]) == b, "c never comes, and the prompt doesn't count"
    assert chosen([c, a]) == a, "ab would be complete"
    assert chosen([a, c]) == b


def test_tokens_beyond_the_networks_vocabulary_are_none_to_exclude() -> None:
    for sampling in (Sampling(temperature=0.0, bad_words=("z", "b")), Sampling(min_tokens=1)):
        new = NewSequence("s", Prompt([1], 1, GenerationRequest()), sampling)
        [choice] = choose([[0.0, 1.0, 50.0]], [LiveSequence(new, Spelling(), frozenset([2, 9]))])
        assert choice.token < 2


def test_logprobs_are_the_models_own_and_without_its_numbers_no_token_is_chosen() -> None:
    logits = [0.0, 1.0, 3.0]
    expected = torch.tensor(logits).log_softmax(0)
    biased = row(prompt=[0], logit_bias={0: 50}, logprobs=2)
    [found, none] = choose([logits, logits], [biased, row(prompt=[0])])
    assert found.token == 0
    assert found.logprob == pytest.approx(float(expected[0]))
    assert list(found.top) == [(n, pytest.approx(float(expected[n]))) for n in (2, 1)]
    assert none.logprob is None
    [named] = choose([logits], [row(prompt=[0], logprobs=1, logprob_token_ids=(1, 0, 1))])
    assert [token for token, _ in named.top] == [2, 1, 0]
    assert dict(named.top) == {n: pytest.approx(float(expected[n])) for n in range(3)}
    broken, fine = choose([[math.nan] * 4, [0.0, 1.0, 0.0, 0.0]], [row(prompt=[0])] * 2)
    assert (broken.token, fine.token) == (-1, 1)


def test_given_tokens_have_their_log_probability_and_their_rank() -> None:
    logits = torch.tensor([rising(), rising()[::-1]] * 50)
    expected = logits.log_softmax(-1)
    found = list(scores(logits, [0, 3] * 50, 2))
    assert len(found) == 100
    for n, one in enumerate(found):
        token, top = (3, [0, 1]) if n % 2 else (0, [39, 38])
        assert (one.token, one.rank) == (token, 4 if n % 2 else SIZE)
        assert one.logprob == pytest.approx(float(expected[n, token]))
        assert list(one.top) == [(t, pytest.approx(float(expected[n, t]))) for t in top]
    assert [one.top for one in scores(logits[:1], [0], 0)] == [()]
