"""Requests: from calls; their seeds, and what they take over from another worker."""

from dataclasses import replace

import pytest

from jobs import clock
from jobs.calls.messages import Call
from jobs.models.inputs.generation import GenerationRequest, Sampling
from tests.unit.workers.generation.made import sequence
from workers.engines.echo_chat import EchoChat
from workers.engines.generator import Prompt
from workers.engines.protocol import InvalidInput
from workers.generation.preparation import MOST_SCORES, call_requests, prepare
from workers.generation.requests import Emission, Request, sequences_of


@pytest.mark.parametrize("ahead_s", [-2.0, 2.0])
def test_no_call_came_later_than_now(ahead_s: float) -> None:
    now_s = clock.monotonic()
    at_ms = (now_s + ahead_s) * 1000
    call = Call("a", "{}/0", "tenant", "one", 1, "api-1", enqueued_ms=at_ms, deadline_ms=at_ms)
    [request], replies = call_requests([call], [()], {})
    assert not replies
    assert min(now_s, at_ms / 1000) <= request.arrived_s <= clock.monotonic()


def _request(id: str, name: str = "", n: int = 2) -> Request:
    asked = Prompt((), 3, GenerationRequest(prompt="x", n=n, sampling=Sampling(max_tokens=4)))
    request = Request(id, None, False, [asked], 0.0, 0.0, "a", name=name)
    request.sequences += sequences_of(request, 100)
    return request


def test_seeds_follow_from_the_name_of_a_request() -> None:
    first, again = _request("1", "job/0/0"), _request("2", "job/0/0")
    other = _request("3", "job/1/0")
    seeds = [one.sampling.seed for one in first.sequences]
    assert seeds == [one.sampling.seed for one in again.sequences]
    assert len({*seeds, *(one.sampling.seed for one in other.sequences)}) == 4


def test_a_sequence_goes_on_from_what_another_worker_emitted_unless_it_had_ended() -> None:
    one = sequence(prompt=10, tokens=8)
    one.resume(Emission(0, [5, 6, 7], "abc", cached=4))
    assert (one.tokens, one.most_left, "".join(one.text)) == (13, 5, "abc")
    assert one.as_new().emitted == (5, 6, 7)
    request = _request("1")
    first, second = request.sequences
    first.resume(Emission(0, [5], "a", finish="stop", stopped_by="b"))
    assert request.unfinished == [second]
    second.resume(Emission(1, [5], "a", finish="length"))
    assert request.ended


def test_a_salt_of_its_own_is_part_of_what_a_cached_beginning_is_shared_by() -> None:
    one, other = _request("1"), _request("2")
    salted = replace(one.prompts[0].request, cache_salt="s")
    one.sequences[0].prompt = replace(one.prompts[0], request=salted)
    assert one.sequences[0].as_new().salt != one.sequences[1].as_new().salt
    assert one.sequences[1].as_new().salt == other.sequences[0].as_new().salt


def test_a_stop_token_is_the_reason_of_the_end_that_it_made() -> None:
    one = sequence(tokens=8)
    one.sampling = replace(one.sampling, stop_token_ids=(0, 7))
    for tokens, finish, reason in (
        ([7, 0], "stop", 0),
        ([7, 5], "stop", None),
        ([0], "length", None),
    ):
        one.resume(Emission(0, tokens, "", finish=finish))
        assert one.stop_reason(one) == reason
    one.resume(Emission(0, [7], "a", finish="stop", stopped_by="b"))
    assert one.stop_reason(one) == "b"


def test_the_scores_of_the_prompts_of_one_request_are_bounded_together() -> None:
    engine = EchoChat(context_tokens=MOST_SCORES + 1)
    half = "x " * (MOST_SCORES // 42)
    for fields, named in (
        ({"prompt_logprobs": 20}, "prompt_logprobs: "),
        ({"echo": True, "logprobs": 20}, "echo with logprobs: "),
    ):
        (fitting, refused, more) = prepare(
            engine,
            [
                {"prompt": [half, half], **fields},
                {"prompt": [half, half + "y y"], **fields},
                {"prompt": "x " * MOST_SCORES, **fields},
            ],
        )
        assert not isinstance(fitting, InvalidInput)
        assert str(refused).startswith(named)
        assert isinstance(more, InvalidInput)
        assert "ask for fewer by" in str(more)
    [unscored] = prepare(engine, [{"prompt": "x " * MOST_SCORES, "echo": True}])
    assert not isinstance(unscored, InvalidInput)
