"""Calls of a generation host: streams, ends, cancels, death of its generator; items beside them."""

import threading
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import pytest
import redis

from jobs.calls.messages import Delta
from jobs.calls.streams.rollout import StreamReader
from jobs.rollouts.records import LaunchRecord
from tests.integration.workers.generation.host_bench import HOUR_S, Bench, Echo
from tests.support import thread_clock
from tests.support.clients import chat
from tests.support.wait import PATIENCE_S, eventually
from workers.engines.generator import Prompt
from workers.engines.protocol import InvalidInput
from workers.items.in_flight import InFlightSlice

Hosted = Callable[..., Bench]
LONG = {"min_tokens": 4000}


def joined(deltas: list[Delta], index: int = 0) -> str:
    return "".join(c.text for delta in deltas for c in delta.choices if c.index == index)


def test_a_call_ends_with_the_whole_completion_its_usage_and_its_timing(started: Hosted) -> None:
    bench = started()
    bench.call("a", "one two three")
    output, error, timing = bench.reply("a")
    assert error is None
    [choice] = output["choices"]
    assert (choice["message"]["content"], choice["finish_reason"]) == ("one two three", "stop")
    usage = output["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (3, 3)
    assert timing["ttft_ms"] == pytest.approx(timing["queue_ms"] + timing["prefill_ms"], abs=0.01)
    assert timing["itl_ms"] == pytest.approx(timing["decode_ms"] / 2, abs=0.01)
    assert timing["deltas"] == 0


def test_tokens_that_were_cut_from_prompts_are_counted_in_calls_and_items(started: Hosted) -> None:
    bench = started()
    bench.call("a", "one two three", truncate_prompt_tokens=1)
    output, _, timing = bench.reply("a")
    assert (output["usage"]["prompt_tokens"], output["usage"]["truncated"]) == (1, 2)
    assert timing["truncated"] == 2
    prompts = chat("one two three", truncate_prompt_tokens=2), "one two"
    [in_flight] = bench.slices(prompts)
    eventually(lambda: in_flight.finished)
    cuts = {outcome.seq: outcome.truncated for outcome in in_flight.outcomes}
    assert cuts == {0: 1, 1: 0}
    shown = {outcome.seq: outcome.output["usage"] for outcome in in_flight.outcomes}
    assert (shown[0]["truncated"], "truncated" in shown[1]) == (1, False)


def test_a_streamed_call_has_numbered_deltas_that_make_up_its_text(started: Hosted) -> None:
    bench = started()
    bench.call("a", "one two three", stream=True, n=2)
    _, _, timing = bench.reply("a")
    assert [delta.number for delta in bench.deltas] == list(range(timing["deltas"]))
    assert [joined(bench.deltas, index) for index in (0, 1)] == ["one two three"] * 2
    finishes = [c.finish for delta in bench.deltas for c in delta.choices if c.finish]
    assert finishes == ["stop", "stop"]


def test_choices_have_seeds_that_follow_one_another(started: Hosted) -> None:
    bench = started()
    bench.call("a", "one", n=3, seed=40)
    bench.call("b", "one")
    assert bench.texts("a") == ["one"] * 3
    bench.reply("b")
    seeds = [one.sampling.seed for one in bench.engine.added if one.id.startswith("a/")]
    assert seeds == [40, 41, 42]
    assert all(one.sampling.seed is not None for one in bench.engine.added)
    assert {one.salt for one in bench.engine.added} == {"tenant"}


def test_a_completion_has_its_prompt_before_it_without_a_nul_that_cannot_be_stored(
    started: Hosted,
) -> None:
    bench = started()
    for id, prompt, text in (("a", "one two", "one two"), ("b", "one \0 two", "one \ufffd two")):
        bench.call(id, "", prompt=prompt, echo=True, logprobs=1, stream=True)
        output, error, _ = bench.reply(id)
        assert error is None
        [choice] = output["choices"]
        assert choice["text"] == joined([one for one in bench.deltas if one.id == id]) == text * 2
        assert ("\ufffd" in choice["logprobs"]["tokens"][1]) == ("\0" in prompt)


def test_an_input_that_the_model_refuses_fails_alone(started: Hosted) -> None:
    bench = started(context_tokens=16)
    bench.call("long", "word " * 20)
    bench.call("fits", "word")
    _, error, _ = bench.reply("long")
    assert "(20 in the messages" in error[1]
    assert bench.texts("fits") == ["word"]


def test_each_call_of_a_rollout_is_recorded(hosted: Hosted, redis_client: "redis.Redis") -> None:
    bench = hosted()
    bench.call("whole", "one two three", cohort="control#r#bob")
    bench.call("cut", "one two three", cohort="canary#r", max_tokens=2, stream=True)
    bench.call("none", "", cohort="canary#r")
    bench.call("missed", "one", cohort="missed#r")
    bench.call("rest", "one", cohort="stable#r")
    bench.start()
    reader, found = StreamReader(redis_client, "r"), list[LaunchRecord]()
    eventually(lambda: found.extend(reader.read()) or len(found) == 4)
    by_lane = {(one.lane, one.failed): one for one in found}
    whole, cut = by_lane["control", 0], by_lane["canary", 0]
    assert (whole.unit, whole.truncated, whole.price) == ("bob", 0, 6.0)
    assert (cut.calls, cut.truncated, cut.empty, cut.price) == (1, 1, 0, 5.0)
    assert 0 < cut.ttft_ms < cut.lasted_ms
    assert cut.itl_ms > 0
    assert {("canary", 1), ("missed", 0)} < set(by_lane)
    bench.reply("rest")
    assert not reader.read()


def test_a_call_that_is_dropped_during_a_step_leaves_after_it(started: Hosted) -> None:
    bench = started()
    call = bench.call("a", "one two", stream=True, **LONG)
    bench.begun()
    bench.engine.go.clear()
    eventually(bench.watch.busy)
    before = bench.engine.steps
    bench.lanes.drop(call)
    # it may be heard while the step before still runs: then it has left already
    eventually(lambda: bench.host._calls.ending or not bench.engine.ids)  # noqa: SLF001
    bench.engine.go.set()
    eventually(lambda: not bench.engine.ids)
    assert bench.engine.steps - before <= 2
    bench.left("a")


def test_a_call_is_dropped_in_the_middle_of_its_prompt(hosted: Hosted) -> None:
    bench = hosted()
    bench.engine.go.clear()
    call = bench.call("a", "word " * 2000, stream=True)
    bench.start()
    eventually(lambda: bench.engine.ids)
    bench.lanes.drop(call)
    eventually(lambda: bench.host._calls.ending)  # noqa: SLF001
    bench.engine.go.set()
    eventually(lambda: not bench.engine.ids)
    bench.left("a")
    assert (bench.deltas, bench.engine.tokens.total()) == ([], 0)


def test_a_call_past_its_deadline_ends(started: Hosted) -> None:
    bench = started(step_ms=5.0)
    bench.call("a", "one", timeout_ms=200, **LONG)
    _, error, _ = bench.reply("a")
    assert error[0] == "deadline_passed"
    eventually(lambda: not bench.engine.ids)


def test_a_death_of_the_generator_goes_unnoticed_but_for_the_time(started: Hosted) -> None:
    bench = started()
    bench.engine.until = 4
    words = " ".join(f"w{n}" for n in range(40))
    bench.call("a", words, stream=True, stop="w7 w9")
    bench.halted()
    bench.engine.deaths = 2
    bench.engine.go_on()
    assert bench.texts("a") == [words]
    assert joined(bench.deltas) == words
    assert bench.engine.restarts == 2
    assert [b.number - a.number for a, b in pairwise(bench.deltas)] == [1] * (len(bench.deltas) - 1)
    assert len(bench.engine.added[-1].emitted) > 3


def test_calls_fail_after_a_few_deaths_in_a_row_and_later_ones_run(hosted: Hosted) -> None:
    bench = hosted()
    bench.engine.deaths = 4
    bench.call("a", "one")
    bench.start()
    _, error, _ = bench.reply("a")
    assert error[0] == "transient"
    bench.call("b", "two")
    assert bench.texts("b") == ["two"]


class Prepares(Echo):
    """Waits while it prepares a prompt of one word."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.preparing, self.prepared = threading.Event(), threading.Event()

    def prepare(self, inputs: Sequence[Any]) -> list[Prompt | InvalidInput]:
        if inputs[0]["messages"][0]["content"] == "late":
            self.preparing.set()
            self.prepared.wait(PATIENCE_S)
        return super().prepare(inputs)


def test_a_call_that_is_dropped_while_it_is_prepared_ends(hosted: Hosted) -> None:
    bench = hosted(kind=Prepares)
    engine: Any = bench.engine
    bench.call("a", "one", **LONG)
    bench.start()
    eventually(lambda: engine.ids)
    late = bench.call("b", "late", **LONG)
    eventually(engine.preparing.is_set)
    bench.lanes.drop(late)
    eventually(lambda: not bench.lanes._redis.exists(bench.lanes.keys.cancelled("worker-1")))  # noqa: SLF001
    engine.prepared.set()
    bench.left("b")


def test_the_watchdog_waits_for_longer_than_a_step_may_take(hosted: Hosted) -> None:
    bench = hosted()
    bench.engine.go.clear()
    bench.call("a", "one")
    bench.start()
    eventually(bench.watch.busy)
    left_s = bench.watch.left_s()
    assert bench.host.model.limits.max_launch_s < left_s < HOUR_S


def test_more_calls_than_places_all_end(started: Hosted) -> None:
    bench = started(sequences=4, blocks=20, block_tokens=4, context_tokens=80)
    for n in range(30):
        bench.call(f"c{n}", f"word {n} of many", tenant=f"t{n % 3}")
    assert [bench.texts(f"c{n}") for n in range(30)] == [[f"word {n} of many"] for n in range(30)]
    assert bench.engine.step(1).free_blocks == 20


def test_a_light_tenant_starts_at_once_beside_one_that_has_all_places(hosted: Hosted) -> None:
    bench = hosted(sequences=4)
    bench.engine.until = 1
    for n in range(12):
        bench.call(f"long{n}", "one", tenant="flood", min_tokens=200)
    bench.start()
    for n in range(3):  # one after the other: each has its turn
        bench.halted()
        bench.call(f"light{n}", "one two", tenant="light")
        bench.taken(f"light{n}")
        bench.engine.until += 40
        bench.engine.go.set()
        *_, timing = bench.reply(f"light{n}")
        assert timing["preemptions"] == 0
        assert not any(f"long{n}" in bench.replies for n in range(12))
    bench.engine.go_on()
    lengths = [len(bench.texts(f"long{n}")[0].split()) for n in range(12)]
    assert lengths == [200] * 12
    assert max(bench.replies[f"long{n}"][2]["preemptions"] for n in range(12)) >= 1


def test_the_announced_profile_predicts_the_first_token(
    hosted: Hosted, monkeypatch: pytest.MonkeyPatch
) -> None:
    thread_clock.install(monkeypatch)
    bench = hosted(step_ms=20.0)
    assert not bench.host.profile().buckets
    bench.host.warm_up()
    times = bench.host.profile().buckets[0]
    assert 15 < times.one_ms < times.full_ms
    assert times.full_rows == 64


def test_a_full_host_announces_for_how_long_it_has_no_room(hosted: Hosted) -> None:
    bench = hosted(step_ms=10.0, sequences=1)
    bench.host.warm_up()
    bench.call("a", "one two", **LONG)
    bench.start()
    eventually(lambda: bench.engine.ids)
    until_ms = [0.0]

    def moved() -> bool:
        look = bench.lanes.look("nobody/0")
        until_ms.append(look.busy.get("worker-1/0", 0.0))
        return until_ms[-1] > look.now_ms + 500 and len(set(until_ms)) > 3

    eventually(moved)


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
    assert in_flight.outcomes[0].seq == 1
    bench.host.release(in_flight)


def test_a_call_beside_a_job_that_fills_all_places_begins_at_once(started: Hosted) -> None:
    bench = started(sequences=4)
    bench.engine.until = 50
    [in_flight] = bench.slices([chat(f"item {n}", min_tokens=150) for n in range(16)])
    bench.halted()
    bench.call("a", "one two three")
    bench.taken("a")
    bench.engine.until = 100
    bench.engine.go.set()
    assert bench.texts("a") == ["one two three"]
    bench.halted()
    assert not in_flight.outcomes
    bench.engine.go_on()
    outputs = ends(in_flight)
    texts = [" ".join(["item", str(n)] * 75) for n in range(16)]
    assert outputs == dict(enumerate(texts))
    assert bench.host.scheduler.preemptions >= 1


def test_a_preempted_item_keeps_its_text_and_is_billed_once(started: Hosted) -> None:
    bench = started(sequences=1)
    bench.engine.until = 5
    text = " ".join(f"w{n}" for n in range(100))
    [in_flight] = bench.slices([text])
    bench.halted()
    bench.call("a", "one two three")
    bench.taken("a")
    bench.engine.go_on()
    assert bench.texts("a") == ["one two three"]
    assert ends(in_flight) == {0: text}
    assert [len(one.emitted) > 0 for one in bench.engine.added] == [False, False, True]
    [outcome] = in_flight.outcomes
    assert outcome.tokens is not None
    assert (outcome.tokens.input, outcome.tokens.output) == (100, 100)


def test_a_released_slice_gives_back_its_items_and_blocks(started: Hosted) -> None:
    bench = started(sequences=2)
    bench.engine.until = 5
    jobs = [[chat("go on", min_tokens=4000) for _ in range(4)], ["a b"]]
    released, kept = bench.slices(*jobs)
    bench.halted()
    bench.host.release(released)
    bench.engine.go_on()
    eventually(lambda: released.finished)
    assert not released.outcomes
    assert ends(kept) == {0: "a b"}
    eventually(lambda: not bench.engine.ids)


def test_items_survive_the_death_of_the_generator(started: Hosted) -> None:
    bench = started()
    text = " ".join(f"w{n}" for n in range(60))
    bench.engine.until = 5
    [in_flight] = bench.slices([text] * 5)
    bench.halted()
    bench.engine.deaths = 1
    bench.engine.go_on()
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
