"""A run that left something untried doesn't pass."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from ops.bench.chaos.coverage import DURABLE, gaps
from ops.bench.chaos.faults.targets import Proof
from ops.bench.chaos.record import History
from ops.bench.chaos.streams import StreamTally
from ops.bench.chaos.verify import Findings

KINDS = ("api_killed", "worker_killed")
FIRED: list[tuple[float, str, Proof]] = [
    (0.5, "api_killed", {"status": -9}),
    (1.0, "worker_killed", {"status": -9}),
]
FOUND = Findings(jobs=3, read_while_running=5)
READ = StreamTally(streams=2)


def described(
    fired: list[tuple[float, str, Proof]] = FIRED,
    durability: Mapping[str, str] = DURABLE,
    found: Findings = FOUND,
    streams: StreamTally = READ,
) -> list[str]:
    return list(gaps(KINDS, History(fired=fired), durability, found, streams))


def test_every_planned_kind_must_fire_with_its_proof() -> None:
    assert described(FIRED[:1]) == ["no fault of kind worker_killed fired"]
    assert described([*FIRED, (2.0, "api_killed", {})]) == ["api_killed at 2.0 s has no proof"]
    assert described() == []


@pytest.mark.parametrize("name", DURABLE)
def test_relaxed_durability_is_a_gap(name: str) -> None:
    assert described(durability={**DURABLE, name: "off"}) == [f"{name} is off, not {DURABLE[name]}"]


def test_a_run_without_jobs_reads_or_whole_streams_is_a_gap() -> None:
    assert described(found=replace(FOUND, jobs=0)) == ["no job was acknowledged"]
    assert described(found=replace(FOUND, read_while_running=0)) == [
        "no result was read while its job ran"
    ]
    failed = StreamTally(streams=1)
    failed.errors["unavailable"] = 1
    assert described(streams=failed) == ["none of 1 streams came to its end"]
