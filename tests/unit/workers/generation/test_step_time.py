"""Time of a step, learned."""

import random

import pytest

from workers.generation.step_time import StepTime


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


def test_a_pause_of_the_machine_counts_little() -> None:
    assert learned(pause_every=50).predict_s(0, 32, 16_000) == pytest.approx(0.0194, rel=0.4)


def test_it_follows_a_device_that_becomes_slower() -> None:
    time = learned()
    for n in range(1000):
        time.observe(0.1, 0, 1 + n % 8, 100)
    assert time.predict_s(0, 4, 100) == pytest.approx(0.1, rel=0.1)


def test_a_first_long_prompt_is_learned_at_once_however_sure_the_rest_was() -> None:
    time = StepTime()
    for _ in range(200):
        time.observe(0.01, 0, 4, 500)
    for _ in range(3):
        time.observe(0.11, 1000, 4, 500)
    assert time.predict_s(1000, 4, 500) == pytest.approx(0.11, rel=0.1)
    assert time.prefill_within(0.06, 4, 500, 2048) == pytest.approx(500, rel=0.2)


def test_long_decoding_leaves_the_cost_of_a_prompt_known() -> None:
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
