"""Order in which prompts of several tenants are computed, and what is before that of a new call."""

from dataclasses import replace

from tests.unit.workers.generation.made import scheduler, sequence, step, timed
from workers.generation.admission.prefill_turns import PrefillTurns, cut
from workers.generation.prediction import USUAL_PROMPT, profile
from workers.generation.requests import Sequenced


def prompt(tokens: int, tenant: str = "a", *, call: bool = True, weight: float = 1.0) -> Sequenced:
    made = sequence(tokens, tenant=tenant, call=call, weight=weight)
    made.to_prefill = tokens
    return made


def test_a_short_prompt_goes_before_long_ones_that_came_earlier_and_an_item_after_all() -> None:
    item, *floods = prompt(50, "job", call=False), *(prompt(900, "flood") for _ in range(8))
    light = prompt(100, "light")
    assert PrefillTurns().order([item, *floods, light]) == [light, *floods, item]


def test_tenants_get_tokens_by_weight_and_nobody_waits_for_ever() -> None:
    turns, served = PrefillTurns(), {"a": 0, "b": 0}
    for _ in range(300):
        ones = [prompt(900, "a"), prompt(100, "b", weight=2.0)]
        first = turns.order(ones)[0]
        turns.serve(first, first.to_prefill)
        served[first.request.tenant] += first.to_prefill
    assert 1.7 < served["b"] / served["a"] < 2.3


def test_a_tenant_that_was_away_has_saved_nothing_up_and_owes_what_it_had() -> None:
    turns, long = PrefillTurns(), prompt(1000, "a")
    turns.order([long])
    turns.serve(long, 700)
    long.to_prefill = 300
    late, fresh = prompt(400, "b"), prompt(100, "b")
    assert turns.order([long, late]) == [long, late], "300 and 400 from 700 on"
    turns.serve(late, 400)
    assert turns.order([long]) == [long]
    assert turns.order([long, fresh]) == [long, fresh], "b had 400 of them a moment ago"
    turns.order([])
    assert turns.order([long, fresh]) == [fresh, long], "all start alike"


def test_choices_wait_for_their_prompt_once() -> None:
    [first] = (request := sequence(100, tenant="light").request).sequences
    request.prompts = [replace(one, request=replace(one.request, n=8)) for one in request.prompts]
    request.sequences += [Sequenced(request, n, first.prompt, first.sampling) for n in range(1, 8)]
    for one in request.sequences:
        one.to_prefill = 100
    long = prompt(300, "flood")
    assert PrefillTurns().order([long, *request.sequences]) == [*request.sequences, long]


def test_a_step_isnt_lengthened_for_a_prompt_of_another_tenant_that_it_doesnt_complete() -> None:
    light, flood = prompt(100, "light"), prompt(900, "flood")
    assert cut([light, flood], 500) == 100
    assert cut([light, prompt(300, "other"), flood], 500) == 400
    assert cut([flood, light], 500) == 500
    assert cut([light, prompt(900, "light")], 500) == 500
    assert cut([light], 500) == 500
    assert cut([light, prompt(900, "job", call=False)], 500) == 500, "items get what is left"
    assert cut([], 500) == 500


def test_a_light_tenant_has_its_first_token_at_once_and_is_told_so_at_admission() -> None:
    made = scheduler(blocks=10_000, sequences=16, itl_s=0.1)
    timed(made, prefill_s=0.001)
    alone = profile(made, 0.0)
    made.put(sequence(900, 40, tenant="flood") for _ in range(8))
    step(made)
    step(made)
    beside = profile(made, 0.0)
    one_ms, usual_ms = beside.buckets[0].one_ms, alone.buckets[0].one_ms
    assert one_ms < 1.5 * usual_ms + 100
    assert beside.behind_ms.keys() == {"flood"}
    assert one_ms + beside.behind_ms["flood"] > 10 * usual_ms
    made.put([light := sequence(USUAL_PROMPT, 40, tenant="light")])
    steps = 0
    while not light.emitted:
        step(made)
        steps += 1
    assert steps <= 5, "at 90 tokens a step beside those that have begun"


def test_a_call_without_room_is_overtaken_by_tenants_with_fewer_places_alone() -> None:
    made = scheduler(blocks=10_000, sequences=4)
    made.put(sequence(10, 500, tenant="flood") for _ in range(6))
    step(made)
    made.put([light := sequence(10, 5, tenant="light", weight=0.5)])
    made.turns.serve("light", output=9000)
    assert made.calls.first() is not light, "it isn't its turn"
    decision = step(made)
    assert decision.admitted == [light]
    assert [one.request.tenant for one in decision.preempted] == ["flood"]


def test_a_step_that_completes_calls_has_room_for_the_prompt_of_an_item() -> None:
    made = scheduler(blocks=10_000, sequences=16, itl_s=0.1)
    timed(made, prefill_s=0.001)
    made.put([sequence(900, 5, call=False, tenant="job")])
    step(made)
    for n in range(20):
        made.put([sequence(30, 1, tenant=f"light-{n % 2}")])
        assert step(made).prefill_tokens > 30


def test_a_call_that_gives_way_in_the_decision_that_admitted_it_is_not_there_twice() -> None:
    made = scheduler(blocks=19, sequences=8)
    made.put(sequence(10, 20, tenant=tenant) for tenant in "aappp")
    assert len(made.decide().admitted) == 5
    made.put([sequence(300, 50, tenant="p"), late := sequence(10, 20, tenant="a")])
    made.put([first := sequence(10, 20, tenant="b")])
    for tenant, tokens in (("a", 9001), ("b", 9002), ("p", 9000)):
        made.turns.serve(tenant, input=tokens - int(made.turns.counter(tenant)))
    decision = made.decide()
    assert (decision.admitted, decision.preempted, decision.aborted) == ([first], [], [])
    assert late in made.calls
    assert late.runs == 0
