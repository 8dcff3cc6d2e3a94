"""The fault suite itself: its schedule is the seed's, and what is broken does not pass."""

import json
import shutil
from pathlib import Path
from random import Random

import pytest

from ops.bench.chaos import small_disk
from ops.bench.chaos.clients.job_client import Followed
from ops.bench.chaos.clients.workload import MOST_ITEMS, Work, invent
from ops.bench.chaos.faults.table import DISK_FULL, FAULTS, plan
from ops.bench.chaos.record import draw
from ops.bench.chaos.verify import Findings, judge

WORK = Work("1-1-1", "moody", 4, {1: "raise", 2: "exit"})


def test_faults_have_their_shares_in_a_long_run_and_in_ci() -> None:
    kinds = [planned.kind for planned in plan(1, 1000, 1200.0)]
    counts = {kind: kinds.count(kind) for kind in FAULTS}
    assert counts == {kind: fault.share for kind, fault in FAULTS.items()}
    matter = "worker_killed worker_stopped worker_terminated api_killed keeper_killed"
    assert min(counts[kind] for kind in (*matter.split(), "postgres_stopped")) >= 100
    assert counts["redis_killed"] + counts["redis_flushed"] >= 100
    planned = plan(1, 150, 180.0)
    assert [fault.kind for fault in planned].count(DISK_FULL) == 5
    without = plan(1, 150, 180.0, [DISK_FULL])
    assert without == [fault for fault in planned if fault.kind != DISK_FULL]


@pytest.mark.heavy
def test_a_file_takes_all_space_and_gives_it_back(tmp_path: Path) -> None:
    with small_disk.mounted(tmp_path / "disk", 8) as is_mounted:
        if not is_mounted:
            pytest.skip("needs to mount a file system")
        filler = tmp_path / "disk" / "filler"
        assert small_disk.fill(filler) > 7 << 20
        assert shutil.disk_usage(tmp_path / "disk").free == 0
        filler.unlink()
        assert shutil.disk_usage(tmp_path / "disk").free > 7 << 20
    assert not list((tmp_path / "disk").iterdir())
    assert shutil.disk_usage(tmp_path / "disk").total > 8 << 20


def test_any_number_of_faults_is_dealt_within_the_time_as_the_seed_has_it() -> None:
    assert plan(7, 100, 60.0) == plan(7, 100, 60.0) != plan(8, 100, 60.0)
    for faults in (1, 7, 150, 1001):
        times_s = [fault.at_s for fault in plan(3, faults, 30.0)]
        assert len(times_s) == faults
        assert times_s == sorted(times_s)
        assert times_s[0] >= 0
        assert times_s[-1] <= 30.0


def test_work_is_a_function_of_its_seed() -> None:
    works = [invent(f"1-1-{n}", Random(n)) for n in range(500)]
    assert works == [invent(f"1-1-{n}", Random(n)) for n in range(500)]
    totals = [work.total for work in works]
    assert 1 <= min(totals) < 10
    assert MOST_ITEMS / 2 < max(totals) <= MOST_ITEMS
    assert all(0 <= seq < work.total for work in works for seq in work.marks)


def line(seq: int, outcome: str, told: str | None = None) -> bytes:
    found = {"seq": seq, "outcome": outcome, "output": None, "error": None}
    found |= {"output": told} if outcome == "succeeded" else {"error": {"code": told}}
    return json.dumps(found, separators=(",", ":")).encode()


RIGHT = [
    line(0, "succeeded", WORK.text(0).upper()),
    line(1, "failed", "engine_error"),
    line(2, "failed", "worker_lost"),
    line(3, "succeeded", WORK.text(3).upper()),
]
COUNTS = {"succeeded": 2, "failed": 2, "cancelled": 0, "expired": 0}


def judged(
    lines: list[bytes], counts: dict[str, int] = COUNTS, verb: str | None = None
) -> Findings:
    found = Findings()
    followed = Followed(WORK, "job_1", [(0.0, verb)] if verb else [], may_expire=False)
    for seq, read in enumerate(RIGHT):
        followed.note(seq, read)
    judge(followed, {"generation": 1, "counts": counts}, lines, found)
    return found


def test_results_counts_and_verbs_that_fit_pass_and_what_is_not_as_it_should_be_is_found() -> None:
    found = judged(RIGHT)
    assert (found.broken, found.items) == (False, 4)
    assert judged(RIGHT, COUNTS | {"failed": 1}).wrong == 1
    counts = COUNTS | {"succeeded": 1, "cancelled": 1}
    lines = [*RIGHT[:3], line(3, "cancelled")]
    assert judged(lines, counts).wrong == 1
    assert judged(lines, counts, verb="cancel").wrong == 0
    for name, lines in (
        ("lost", RIGHT[:3]),
        ("duplicated", [*RIGHT[:3], RIGHT[2], RIGHT[3]]),
        ("out_of_order", [RIGHT[1], RIGHT[0], *RIGHT[2:]]),
        ("wrong", [line(0, "succeeded", "something else"), *RIGHT[1:]]),
        ("wrong", [RIGHT[0], line(1, "failed", "worker_lost"), *RIGHT[2:]]),
        ("wrong", [line(0, "cancelled"), *RIGHT[1:]]),
        ("wrong", [*RIGHT[:3], line(3, "expired")]),
        ("innocent_failed", [line(0, "failed", "worker_lost"), *RIGHT[1:]]),
        ("changed", [line(0, "succeeded", WORK.text(0).upper() + " "), *RIGHT[1:]]),
    ):
        found = judged(lines)
        assert getattr(found, name) >= 1, lines
        assert found.broken


def test_the_picture_has_the_curve_and_a_mark_for_each_fault() -> None:
    pytest.importorskip("matplotlib")  # of the extra `bench`
    faults = [(planned.at_s, planned.kind) for planned in plan(1, 100, 60.0)]
    curve, marks = draw([(0.0, 0), (60.0, 5000)], faults).axes
    assert curve.lines[0].get_xydata().tolist() == [[0.0, 0.0], [60.0, 5000.0]]
    assert sum(len(row.get_positions()) for row in marks.collections) == 100
