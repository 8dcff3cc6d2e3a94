"""Items of a generation host, alone and beside calls."""

from collections.abc import Callable
from typing import Any

from tests.integration.workers.generation.host_bench import Bench
from tests.support.clients import chat
from tests.support.wait import eventually
from workers.engines.protocol import InvalidInput
from workers.items.in_flight import InFlightSlice

Hosted = Callable[..., Bench]


def ends(in_flight: InFlightSlice) -> dict[int, Any]:
    """Text of each item by seq, or its error, once all have ended."""
    eventually(lambda: in_flight.finished)
    return {
        one.seq: one.output
        if isinstance(one.output, Exception)
        else one.output["choices"][0]["message"]["content"]
        for one in in_flight.outcomes
    }


def test_items_of_several_jobs_end_with_their_texts_and_tokens_or_alone(started: Hosted) -> None:
    bench = started()
    one, other = bench.slices(["a b", {"messages": []}, "c"], ["d e f"])
    outputs = ends(one)
    assert isinstance(outputs.pop(1), InvalidInput)
    assert (outputs, ends(other)) == ({0: "a b", 2: "c"}, {0: "d e f"})
    [outcome] = other.outcomes
    assert outcome.tokens is not None
    assert (outcome.tokens.input, outcome.tokens.output, outcome.size) == (3, 3, 6)


def test_short_items_end_before_long_ones_of_their_slice(started: Hosted) -> None:
    bench = started()
    [in_flight] = bench.slices([chat("long", min_tokens=4000), "short"])
    eventually(lambda: in_flight.outcomes)
    assert [one.seq for one in in_flight.outcomes] == [1]
    bench.host.release(in_flight)


def test_a_call_beside_a_job_that_fills_all_places_begins_at_once(started: Hosted) -> None:
    bench = started(sequences=4)
    [in_flight] = bench.slices([chat(f"item {n}", min_tokens=150) for n in range(16)])
    eventually(lambda: len(bench.engine.ids) == 4)
    bench.call("a", "one two three")
    assert bench.texts("a") == ["one two three"]
    assert not in_flight.finished
    outputs = ends(in_flight)
    texts = [" ".join(["item", str(n)] * 75) for n in range(16)]
    assert outputs == dict(enumerate(texts))
    assert bench.host.scheduler.preemptions >= 1


def test_a_preempted_item_keeps_its_text_and_is_billed_once(started: Hosted) -> None:
    bench = started(sequences=1)
    text = " ".join(f"w{n}" for n in range(100))
    [in_flight] = bench.slices([text])
    eventually(lambda: bench.host.scheduler.running and bench.engine.steps > 5)
    bench.call("a", "one two three")
    assert bench.texts("a") == ["one two three"]
    assert ends(in_flight) == {0: text}
    assert [len(one.emitted) > 0 for one in bench.engine.added] == [False, False, True]
    [outcome] = in_flight.outcomes
    assert outcome.tokens is not None
    assert (outcome.tokens.input, outcome.tokens.output) == (100, 100)


def test_a_released_slice_gives_back_its_items_and_blocks(started: Hosted) -> None:
    bench = started(sequences=2)
    jobs = [[chat("go on", min_tokens=4000) for _ in range(4)], ["a b"]]
    released, kept = bench.slices(*jobs)
    eventually(lambda: len(bench.engine.ids) == 2)
    bench.host.release(released)
    eventually(lambda: released.finished)
    assert not released.outcomes
    assert ends(kept) == {0: "a b"}
    eventually(lambda: not bench.engine.ids)


def test_items_survive_the_death_of_the_generator(started: Hosted) -> None:
    bench = started()
    text = " ".join(f"w{n}" for n in range(60))
    [in_flight] = bench.slices([text] * 5)
    eventually(lambda: bench.engine.steps > 5)
    bench.engine.deaths = 1
    assert ends(in_flight) == dict.fromkeys(range(5), text)
    assert bench.engine.restarts == 1


def test_slices_are_sized_by_the_time_that_their_tokens_take(hosted: Hosted) -> None:
    bench = hosted(step_ms=10.0, sequences=4)
    bench.host.warm_up()
    for _ in range(50):
        bench.host.scheduler.lengths.add(20)
    each_ms = bench.host.capacity.item_ms()
    assert each_ms > 45  # 20 tokens of 10 ms, four at a time
    assert bench.host.capacity.slice_items() == max(4, int(2000 / each_ms))
