"""Generation on a virtual clock, over the workers' scheduler."""

import pytest

from workers.engines.generator import Capacity
from workers.simulation.generation import Arrival, GenerationResult, StepCosts, quantile, replay

pytestmark = pytest.mark.heavy

CAPACITY = Capacity(1000, 16, 32, 4096)
COSTS = StepCosts(0.01, 0.0001, 0.0005, 0.0)


def run(
    *arrivals: Arrival, capacity: Capacity = CAPACITY, job: bool = False, itl_s: float = 0.0
) -> GenerationResult:
    return replay(arrivals, capacity, COSTS, itl_s, job=job)


def test_a_call_alone_takes_its_prefill_and_a_step_a_token_and_sequences_share_steps() -> None:
    result = run(Arrival(0.0, 100, 11))
    assert result.ttft_s == [pytest.approx(0.0205)]
    assert result.itl_s == [pytest.approx(0.0105)]
    assert (result.calls_tokens, result.steps) == (11, 11)
    result = run(Arrival(0.0, 10, 2), Arrival(1000.0, 10, 2))
    assert result.steps == 4
    assert result.lasted_s == pytest.approx(1000.0, abs=0.1)
    result = run(*(Arrival(0.0, 10, 100) for _ in range(20)))
    assert result.lasted_s < 3.0
    assert result.calls_tokens == 2000


def test_a_job_takes_what_calls_or_the_declared_time_between_tokens_leave() -> None:
    calls = [Arrival(0.5 * n, 100, 40) for n in range(40)]
    alone, beside = run(*calls), run(*calls, job=True)
    assert beside.items_tokens > 1.5 * beside.calls_tokens
    assert quantile(beside.ttft_s, 0.95) < quantile(alone.ttft_s, 0.95) + 0.05
    assert quantile(beside.itl_s, 0.95) < 1.25 * quantile(alone.itl_s, 0.95)
    filled = run(*calls, job=True, itl_s=0.025)
    assert filled.items_tokens > 2 * beside.items_tokens
    assert quantile(filled.itl_s, 0.95) < 0.028


def test_calls_preempt_items_where_blocks_are_few() -> None:
    capacity = Capacity(64, 16, 32, 1024)
    calls = [Arrival(1.0 * n, 200, 50) for n in range(10)]
    assert run(*calls, capacity=capacity, job=True).preemptions > 0


def test_a_tenant_that_floods_long_generations_costs_light_ones_a_few_steps() -> None:
    capacity = Capacity(2000, 16, 32, 4096)
    light = [Arrival(0.4 * n, 100, 40, f"light-{n % 9}") for n in range(300)]
    flood = [Arrival(0.1 * n, 400, 800, "flood") for n in range(120)]
    both = sorted(light + flood, key=lambda one: one.at_s)
    alone, beside = run(*light, capacity=capacity), run(*both, capacity=capacity)
    others = [ttft_s for name, its in beside.tenants.items() if name != "flood" for ttft_s in its]
    assert len(others) == 300
    assert quantile(others, 0.95) < quantile(alone.ttft_s, 0.95) + 0.05  # a full step: 26 ms


def test_a_tenant_that_floods_long_prompts_costs_a_light_one_a_step_or_two() -> None:
    capacity, costs = Capacity(16_384, 16, 64, 8192), StepCosts(0.01, 0.0005, 0.0, 0.0)
    light = [Arrival(3.0 + 1.7 * n, 100, 16, "light") for n in range(30)]
    alone = replay(light, capacity, costs, 0.06)
    for tenants in (1, 8):
        floods = [Arrival(n / 2, 2000, 32, f"flood-{n % tenants}") for n in range(120)]
        both = sorted(light + floods, key=lambda one: one.at_s)
        beside = replay(both, capacity, costs, 0.06).tenants["light"]
        assert len(beside) == 30
        assert quantile(beside, 0.95) < quantile(alone.ttft_s, 0.95) + 2 * 0.06


def test_a_quantile_of_nothing_is_not_a_number() -> None:
    assert quantile([], 0.5) != quantile([], 0.5)
    assert quantile([3.0, 1.0, 2.0], 0.5) == 2.0
