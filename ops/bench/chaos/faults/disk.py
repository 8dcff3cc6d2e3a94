"""Fault of the disk that the home, and so PostgreSQL, is on."""

import shutil
from random import Random

import httpx

from jobs import clock
from ops.bench.chaos import small_disk
from ops.bench.chaos.faults.targets import Proof, Stage, Steps, a_while, true, until

_ASKED_FOR_S = 0.5  # the main loop waits for the answer
_REFUSED, _TAKEN = (503, 507), 422
_EMPTY: dict[str, object] = {}  # no job: refused on a full disk, invalid otherwise


def disk_full(stage: Stage, dice: Random) -> Steps[Proof]:
    """Takes all space that is free for seconds: PostgreSQL may end, and intake is refused.

    The next ones start once intake is open again."""
    yield from true(lambda: "postgres" not in stage.busy)
    with stage.holding("postgres"):
        file = stage.fleet.home / "filler"
        try:
            taken = small_disk.fill(file)
            free = shutil.disk_usage(stage.fleet.home).free
            since_s = clock.monotonic()
            status = yield from until(lambda: _answer(stage, dice, *_REFUSED))
            yield from a_while(dice.uniform(1.0, 4.0))
        finally:
            file.unlink(missing_ok=True)
        full_s = round(clock.monotonic() - since_s, 3)
        yield from until(lambda: _answer(stage, dice, _TAKEN))
        yield from true(lambda: stage.fleet.query("SELECT 1") is not None)
        back_s = round(clock.monotonic() - since_s - full_s, 3)
    return {
        "filler_bytes": taken,
        "free_bytes": free,
        "full_s": full_s,
        "intake_status": status,
        "taken_again_after_s": back_s,
    }


def _answer(stage: Stage, dice: Random, *statuses: int) -> int | None:
    """Posts what is no job; returns the status where it is one of these."""
    try:
        posted = httpx.post(
            f"{dice.choice(stage.fleet.urls)}/jobs", json=_EMPTY, timeout=_ASKED_FOR_S
        )
    except httpx.TransportError:
        return None
    return posted.status_code if posted.status_code in statuses else None
