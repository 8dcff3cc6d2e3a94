"""Records of launches: what a keeper learns of a lane."""

from collections.abc import Sequence
from typing import Any
from unittest.mock import Mock

import pytest
from redis import RedisError

from jobs import clock
from jobs.calls.messages import SHADOW, Call, Reply
from jobs.models.model import Model
from jobs.rollouts.cohorts import own_lanes, parse
from jobs.rollouts.records import LaunchRecord
from workers.device.monitoring.rollout_records import LaunchRecords, RecordStreams, records_of
from workers.items.results import outcome
from workers.scheduler.entries import Entry, Launch

MODEL = Model("m", "2", "echo")


class Streams(RecordStreams):
    """Remembers what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[LaunchRecord] = []

    def write(self, rollout: str, *launches: Sequence[LaunchRecord]) -> None:
        assert rollout == "r1"
        self.written += [record for records in launches for record in records]


def launch(*cohorts: str) -> Launch:
    calls = [
        Call(str(n), "{}/0", "acme", "x", 3, "api", cohort=one) for n, one in enumerate(cohorts)
    ]
    entries = [Entry(call, 0, call.lane, 0, 3, "x", n / 1000) for n, call in enumerate(calls)]
    return Launch({}, "pace", entries, [], 0.0, started_s=0.01, engine_s=0.02)


def replies(*outputs: Any) -> list[Reply]:
    return [Reply(str(n), *outcome(output), 3, {}) for n, output in enumerate(outputs)]


def made_of(made: Launch, answers: list[Reply]) -> list[LaunchRecord]:
    cohorts = {one.owner.id: parse(one.owner.cohort) for one in made.calls}
    return records_of(MODEL, made, answers, cohorts)  # type: ignore[arg-type]


def test_a_record_counts_what_a_launch_gave() -> None:
    outputs = "", {"deep": [1.0, float("nan")]}, ValueError("no"), "text"
    [record] = made_of(launch(*["control#r1"] * 4), replies(*outputs))
    assert (record.lane, record.calls) == ("control", 4)
    assert (record.failed, record.empty, record.invalid) == (1, 1, 1)
    assert (record.latency_ms, record.device_ms, record.size) == (30.0, 20.0, (4, 12, 36, 0))
    assert record.price == 6.0  # units of the two that were answered
    assert not record.is_lost


def test_each_sticky_caller_of_a_launch_has_a_record_and_the_first_stands_for_it() -> None:
    made = launch("canary#r1#ann", "canary#r1#bob", "canary#r1", "canary#r1#bob")
    answers = replies("a", ValueError("no"), "c", "d")
    found = {one.unit: one for one in made_of(made, answers[::-1])}  # of several api processes
    counts = {unit: (one.calls, one.failed) for unit, one in found.items()}
    assert counts == {"ann": (1, 0), "bob": (2, 1), "": (1, 0)}
    assert sum(one.launches for one in found.values()) == 1
    assert (found["ann"].latency_ms, found["bob"].latency_ms) == (30.0, 29.0)
    assert {one.size for one in found.values()} == {(4, 12, 36, 0)}


def test_calls_of_no_rollout_have_no_record_and_share_lanes() -> None:
    streams = Streams()
    for cohort in ("", SHADOW, "canary#"):
        LaunchRecords(MODEL, streams).add(launch(cohort), {"api": replies("a")})
        assert parse(cohort) is None
        assert own_lanes(cohort) == cohort
    assert not streams.written
    assert own_lanes("canary#r1#ann") == own_lanes("canary#r1") == "canary#r1", "of any caller"
    assert own_lanes("stable#r1") == own_lanes("missed#r1#ann") == ""


def test_launches_of_the_rest_are_counted_and_written_seldom(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    streams, times_s = Streams(), iter((100.0, 100.3, 100.9, 101.1, 102.0, 102.2))
    monkeypatch.setattr(clock, "monotonic", lambda: next(times_s))
    records = LaunchRecords(MODEL, streams)
    for _ in range(4):
        records.add(launch("", "stable#r1", "missed#r1"), {"api": replies("a", "b", "c")})
    assert [(one.lane, one.calls) for one in streams.written].count(("missed", 1)) == 4
    rest = [one for one in streams.written if one.lane == "stable"]
    assert [(one.launches, one.failed) for one in rest] == [(1, 0), (3, 0)]
    for _ in range(2):  # a failure is told of soon
        records.add(launch("stable#r1"), {"api": replies(ValueError("no"))})
    assert [(one.launches, one.failed) for one in streams.written[6:]] == [(1, 1), (1, 1)]


def test_a_redis_that_fails_is_left_alone_for_a_while(
    caplog: pytest.LogCaptureFixture, now: list[float]
) -> None:
    client = Mock()
    client.pipeline.side_effect = RedisError("refused")
    records = LaunchRecords(MODEL, RecordStreams(client))
    for _ in range(3):
        records.add(launch("canary#r1"), {"api": replies("a")})
    assert client.pipeline.call_count == 1
    assert "rollout r1" in caplog.text
    now[0] += 5.0
    records.add(launch("canary#r1"), {"api": replies("a")})
    assert client.pipeline.call_count == 2
