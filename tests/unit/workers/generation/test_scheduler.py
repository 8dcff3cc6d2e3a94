"""Decisions about each step, without thread or clock, and the time of a step, learned."""

import random
from dataclasses import replace
from unittest.mock import Mock

import pytest

from tests.unit.workers.generation.made import scheduler, sequence, step, timed
from workers.engines.generator import Capacity, Step
from workers.engines.protocol import Room
from workers.generation.requests import Sequenced
from workers.generation.scheduler import GenerationScheduler
from workers.generation.step_time import StepTime


def test_sequences_are_admitted_while_they_fit_the_blocks_and_take_the_room_of_calls() -> None:
    made = scheduler(blocks=4)
    made.put(ones := [sequence(prompt=10, tokens=10) for _ in range(3)])
    assert made.decide().admitted == ones[:2]
    assert list(made.calls) == ones[2:]
    made.remove(ones[0])
    assert made.decide().admitted == ones[2:]
    made = scheduler(sequences=4)
    made.put([sequence()])
    assert made.call_room() == 3
    made.decide()
    made.put([sequence(), sequence()])
    assert made.call_room() == 1
    made.put([sequence(), sequence()])
    assert len(made.decide().admitted) == 3
    assert made.call_room() == 0


def test_the_places_of_a_server_change_with_time_and_items_leave_some_to_calls() -> None:
    engine = Mock(room=Mock(return_value=Room(2, items=1)))
    made = GenerationScheduler(Capacity(0, 1, 8, 1000, resumes=False), 0.1, engine=engine)
    made.put([sequence(call=False) for _ in range(4)])
    assert len(made.decide().admitted) == 1
    made.put([call := sequence(), sequence()])
    assert made.call_room() == 0
    assert made.decide().admitted == [call]
    engine.room.return_value = Room(0, closed_s=5.0)
    made.put([sequence()])
    assert not made.decide().admitted
    engine.room.return_value = Room(8, items=7)
    admitted = made.decide().admitted
    assert [one.request.is_call for one in admitted] == [True, True, False, False, False]


def test_what_is_alone_has_room_and_calls_go_before_items_and_the_most_urgent_first() -> None:
    made = scheduler(blocks=4)
    made.put([sequence(prompt=30, tokens=500)])
    assert len(made.decide().admitted) == 1
    made = scheduler(sequences=16, itl_s=0.05)
    timed(made, sequence_s=0.005)
    made.put(sequence(tokens=50, call=False) for _ in range(20))
    assert len(made.decide().admitted) == 16, "items without a call fill all places"
    made = scheduler(sequences=2)
    item, later, sooner = sequence(call=False), sequence(deadline_s=9), sequence(deadline_s=5)
    made.put([item, later, sooner])
    assert made.decide().admitted == [sooner, later]


def test_an_item_gives_way_to_a_call_without_room_and_comes_back_with_its_tokens() -> None:
    made = scheduler(blocks=4)
    made.put(items := [sequence(call=False) for _ in range(2)])
    for _ in range(3):
        step(made)
    made.put([call := sequence()])
    decision = made.decide()
    assert (decision.preempted, decision.admitted) == ([items[1]], [call])
    assert decision.aborted == [f"{items[1].request.id}/0/0/1"]
    assert len(items[1].emitted) == 3
    assert items[1].request.preemptions == made.preemptions == 1
    while items[1] not in made.running:
        step(made)
    assert items[1].runs == 2
    assert items[1].to_prefill in (0, 10 + 3), "they are a part of its prompt"


def test_no_item_gives_way_where_that_would_not_be_enough_or_it_cannot_be_resumed() -> None:
    made = scheduler(blocks=6)
    made.put([sequence(prompt=20, tokens=10), sequence(call=False)])
    made.decide()
    made.put([sequence(prompt=30, tokens=10)])
    assert not made.decide().preempted
    assert len(made.calls) == 1
    made = scheduler(sequences=16)
    made.capacity = replace(made.capacity, resumes=False)
    timed(made, sequence_s=0.0005)
    made.put(sequence(tokens=90, call=False) for _ in range(12))
    step(made)
    made.put([sequence(tokens=5)])
    assert not step(made).preempted


def test_a_call_of_a_tenant_with_more_places_gives_way_to_one_that_has_fewer() -> None:
    made = scheduler(sequences=4)
    made.put(flood := [sequence(tenant="flood", tokens=50) for _ in range(6)])
    step(made)
    made.put(light := [sequence(tenant="light", tokens=50) for _ in range(3)])
    preempted = [one for _ in range(9) for one in step(made).preempted]
    assert preempted == [flood[3], flood[2]]
    assert list(made.running) == [*flood[:2], *light[:2]]


def test_the_latest_sequence_gives_way_where_outputs_are_longer_than_expected() -> None:
    made = scheduler(blocks=6)
    for _ in range(20):
        made.lengths.add(2)
    made.put(ones := [sequence(prompt=10, tokens=40) for _ in range(3)])
    step(made)
    assert list(made.running) == ones
    while len(made.running) == 3:
        decision = step(made)
    assert decision.preempted == [ones[2]]


def test_tenants_take_turns_by_tokens_and_weight_and_no_call_without_room_is_overtaken() -> None:
    made = scheduler(sequences=1)
    made.put(sequence(tokens=10, tenant="flood") for _ in range(9))
    step(made)
    made.put(sequence(tokens=10, tenant="light", weight=2.0) for _ in range(4))
    order = []
    while made.running or made.calls:
        order += [one.request.tenant for one in step(made).admitted]
    assert order[:6] == ["light", "light", "flood", "light", "light", "flood"]
    made = scheduler(blocks=10)
    made.put([sequence(prompt=10, tokens=40)])
    made.decide()
    made.put([big := sequence(prompt=50, tokens=10), sequence(prompt=10, tokens=10, deadline_s=99)])
    made.put([sequence(call=False)])
    assert not made.decide().admitted
    assert big in made.calls


def beside(call_s: float, itl_s: float = 0.05) -> int:
    """Items that run beside one call, where each sequence makes a step so much longer."""
    made = scheduler(sequences=16, itl_s=itl_s)
    timed(made, sequence_s=call_s)
    made.put([sequence(tokens=50)])
    made.put(sequence(tokens=50, call=False) for _ in range(12))
    for _ in range(30):
        step(made)
    return len(made.running) - 1


def test_items_beside_calls_lengthen_steps_little_and_keep_the_time_between_tokens() -> None:
    assert beside(0.0005) == 2  # 10.5 ms, and 11.5 with them
    assert beside(0.0) == 12
    assert beside(0.005) == 1
    assert beside(0.005, itl_s=0.018) == 0


def test_items_give_way_to_a_call_whose_steps_they_make_too_long_and_come_back() -> None:
    made = scheduler(sequences=16, itl_s=0.1)
    timed(made, sequence_s=0.0005)
    made.put(items := [sequence(tokens=90, call=False, place=(n,)) for n in range(16)])
    step(made)
    step(made)
    made.put([call := sequence(tokens=5)])
    decision = step(made)
    assert decision.admitted == [call]
    assert list(made.running) == [*items[:2], call]
    while call in made.running:
        step(made)
    step(made)
    step(made)
    assert set(made.running) == set(items)


def prefilled(itl_s: float, prefill_s: float, *, call: bool = True) -> int:
    """Tokens of a long prompt in its first step beside a call."""
    made = scheduler(blocks=1000, itl_s=itl_s)
    timed(made, prefill_s=prefill_s)
    made.put([sequence(tokens=50)])
    step(made)
    made.put([sequence(prompt=500, tokens=10, call=call)])
    return step(made).prefill_tokens


def test_prompts_are_prefilled_in_pieces_that_lengthen_steps_little() -> None:
    assert 9 <= prefilled(0.1, 0.0001, call=False) <= 14, "an eighth of 10 ms"
    assert 90 <= prefilled(0.06, 0.0005) <= 110, "the time between tokens"
    assert prefilled(0.001, 0.0005) > 0, "also where the target is out of reach"


def test_the_first_token_is_predicted_from_the_prompts_ahead() -> None:
    made = scheduler(blocks=1000, itl_s=0.06)
    timed(made, prefill_s=0.001)
    alone_s = made.first_token_s(100)
    made.put([sequence(prompt=500)])
    made.decide()
    assert 0.1 < alone_s < 0.13
    assert made.first_token_s(100, "a") > 4 * alone_s
    assert made.first_token_s(100) < 1.3 * alone_s, "of another tenant"
    assert made.first_token_s(600) > 9 * alone_s
    server = scheduler(blocks=0, itl_s=0.06)
    timed(server, prefill_s=0.001)
    server.put([sequence(prompt=500)])
    server.decide()
    assert server.first_token_s(100) > 4 * alone_s, "it takes no notice of turns"


def test_choices_of_one_request_count_the_blocks_of_their_prompt_once() -> None:
    made = scheduler(blocks=13, sequences=16)
    request = sequence(prompt=41, tokens=19).request  # 4 blocks in common, and 2 of each
    [prompt], [first] = request.prompts, request.sequences
    request.prompts = [replace(prompt, request=replace(prompt.request, n=6))]
    request.sequences += [Sequenced(request, n, first.prompt, first.sampling) for n in range(1, 6)]
    made.put(request.sequences)
    assert made.decide().admitted == request.sequences[:4]
    made.remove(first)
    assert made.decide().admitted == [request.sequences[4]]


def test_more_of_a_prompt_is_tried_while_steps_leave_time_whatever_is_predicted() -> None:
    made = scheduler(itl_s=0.1, blocks=10_000)
    for _ in range(50):
        made.step_time.observe(0.05, 0, 1, 0)
        made.step_time.observe(0.2, 32, 1, 0)
    made.put([sequence(prompt=900, tokens=50)])
    tokens = []
    for _ in range(4):
        tokens.append(made.decide().prefill_tokens)
        made.stepped(Step(duration_s=0.02, prefill_tokens=tokens[-1], sequences=1))
    assert tokens == sorted(tokens)
    assert tokens[-1] >= 1.5 * tokens[0]


def learned(pause_every: int = 0) -> StepTime:
    noise, time = random.Random(7), StepTime()
    for n in range(600):
        prefill, sequences = noise.choice([0, 0, 64, 256]), noise.randint(1, 32)
        kv = sequences * noise.randint(50, 600)
        seconds = 0.005 + 0.0002 * prefill + 0.0004 * sequences + 1e-7 * kv
        if pause_every and n % pause_every == 0:
            seconds += 2.0
        time.observe(seconds * noise.uniform(0.98, 1.02), prefill, sequences, kv)
    return time


def test_all_four_factors_are_found_and_tell_the_prefill_that_fits_a_time() -> None:
    time = learned()
    assert time.predict_s(0, 1, 0) == pytest.approx(0.0054, rel=0.2)
    assert time.predict_s(256, 1, 0) == pytest.approx(0.0566, rel=0.1)
    assert time.predict_s(0, 32, 16_000) == pytest.approx(0.0194, rel=0.1)
    assert time.prefill_within(0.0254, 1, 0, 2048) == pytest.approx(100, rel=0.15)
    assert time.prefill_within(0.001, 32, 16_000, 2048) == 0
    assert time.prefill_within(100.0, 1, 0, 2048) == 2048


def test_a_pause_of_the_machine_counts_little_and_a_slower_device_is_followed() -> None:
    assert learned(pause_every=50).predict_s(0, 32, 16_000) == pytest.approx(0.0194, rel=0.4)
    time = learned()
    for n in range(1000):
        time.observe(0.1, 0, 1 + n % 8, 100)
    assert time.predict_s(0, 4, 100) == pytest.approx(0.1, rel=0.1)


def test_a_first_long_prompt_is_learned_at_once_and_its_cost_known_after_long_decoding() -> None:
    time = StepTime()
    for _ in range(200):
        time.observe(0.01, 0, 4, 500)
    for _ in range(3):
        time.observe(0.11, 1000, 4, 500)
    assert time.predict_s(1000, 4, 500) == pytest.approx(0.11, rel=0.1)
    assert time.prefill_within(0.06, 4, 500, 2048) == pytest.approx(500, rel=0.2)
    time, noise = learned(), random.Random(7)
    for n in range(20_000):
        kv_tokens = 16 * (400 + n % 400)
        seconds = 0.005 + 0.0004 * 16 + 1e-7 * kv_tokens
        time.observe(seconds * noise.uniform(0.98, 1.02), 0, 16, kv_tokens)
    assert time.predict_s(256, 1, 0) == pytest.approx(0.0566, rel=0.3)


@pytest.mark.parametrize("seed", range(20))
def test_pauses_in_the_first_steps_are_not_multiplied(seed: int) -> None:
    """What a full generator takes is predicted from the few small steps of a warm-up."""
    time, noise = StepTime(), random.Random(seed)
    for sequences in (1, 2, 4):
        for n in range(9):
            prefill = 0 if n else 100 * sequences
            kv = sequences * (100 + n) if n else 0
            paused_s = noise.expovariate(10) if noise.random() < 0.5 else 0.0
            seconds = 0.01 + 0.0003 * prefill + 0.004 * sequences + 1e-6 * kv
            time.observe(seconds + paused_s, prefill, sequences, kv)
    usual_s = 0.01 + 0.05 + 0.004 * 64 + 0.016
    assert time.predict_s(0, 64, 16_000) < 3 * usual_s
