"""A client follows its job to the end: verbs, and results in order while it runs."""

import json
from array import array
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import closing
from dataclasses import dataclass, field
from hashlib import blake2b
from random import Random
from typing import Any

from jobs import clock
from jobs.states import TERMINAL
from ops.bench.chaos.client import GONE, Api
from ops.bench.chaos.ledger import Ledger
from ops.bench.chaos.workload import Work

_POLL_S = 0.2
_FOLLOWED_FOR_S = 600.0
_READ_AGAIN = 0.3  # of all jobs are read once more, from the start

BreakOff = Callable[[str], "Future[dict[str, Any]] | None"]


@dataclass
class Followed:
    """A job that was acknowledged. verbs: still to come, each with its delay; may_expire,
    may_cancel: whether such outcomes are no wonder; seen: a digest of each result that was read;
    out_of_order, changed: what no reader should see."""

    work: Work
    job: str
    verbs: list[tuple[float, str]]
    may_expire: bool
    may_cancel: bool = False
    generation: int = 1
    state: str = "queued"
    seen: "array[int]" = field(default_factory=lambda: array("Q"))
    after: int = -1
    read: int = 0
    out_of_order: int = 0
    changed: int = 0

    def __post_init__(self) -> None:
        self.may_cancel = any(verb == "cancel" for _, verb in self.verbs)
        self.seen = array("Q", bytes(8 * self.work.total))

    def note(self, seq: int, line: bytes) -> None:
        """A result that was read: it never changes again."""
        found = digest(line)
        if self.seen[seq] not in (0, found):
            self.changed += 1
        self.seen[seq] = found

    def start_generation(self, generation: int) -> None:
        """What did not succeed may come out differently; what did, stays."""
        self.generation, self.after = generation, -1
        self.seen = array("Q", (found if found & 1 else 0 for found in self.seen))


def digest(line: bytes) -> int:
    """64 bits of a result line, never 0; the last one says whether it succeeded."""
    found = int.from_bytes(blake2b(line, digest_size=8).digest())
    good = b'"outcome":"succeeded"' in line
    return found | 1 if good else found & ~1 or 2


def follow(followed: Followed, api: Api, dice: Random, ledger: Ledger, break_off: BreakOff) -> None:
    """Until it has ended, and was read to its end."""
    verb_due_s = _next_verb_s(followed)
    deadline_s = clock.monotonic() + _FOLLOWED_FOR_S
    while True:
        job = _look(followed, api)
        ended = job["state"] in TERMINAL
        if followed.verbs and clock.monotonic() >= verb_due_s:
            verb_due_s = _use_verb(followed, api, ended)
            continue
        complete = _read(followed, api, ledger, break_off)
        if ended and complete and not followed.verbs:
            if dice.random() < _READ_AGAIN:
                followed.after = -1
                _read(followed, api, ledger, break_off)
            return
        if clock.monotonic() > deadline_s:
            raise TimeoutError(f"{followed.job} of {followed.work} is still {job['state']}")
        clock.sleep(_POLL_S)


def _next_verb_s(followed: Followed) -> float:
    return clock.monotonic() + (followed.verbs[0][0] if followed.verbs else 0.0)


def _use_verb(followed: Followed, api: Api, ended: bool) -> float:
    """Uses the next verb, or leaves it for later; returns when the one after it is due."""
    verb = followed.verbs[0][1]
    if verb == "retry" and not ended:
        return clock.monotonic() + _POLL_S
    answer = api.insist("POST", f"/jobs/{followed.job}/{verb}")
    if answer.status != 200:
        raise RuntimeError(f"{verb} of {followed.job}: {answer}")
    followed.verbs.pop(0)
    return _next_verb_s(followed)


def _look(followed: Followed, api: Api) -> dict[str, Any]:
    answer = api.insist("GET", f"/jobs/{followed.job}")
    if answer.status != 200:
        raise RuntimeError(f"{followed.job} was acknowledged: {answer}")
    job: dict[str, Any] = answer.json()
    followed.state = job["state"]
    if job["generation"] != followed.generation:
        followed.start_generation(job["generation"])
    return job


def _read(followed: Followed, api: Api, ledger: Ledger, break_off: BreakOff) -> bool:
    """Reads on from where it was; whether there is nothing more to come. What breaks off is
    resumed with the next look."""
    since, generation, asked = followed.after, followed.generation, None
    lines: list[bytes] = []
    try:
        with closing(api.lines(f"/jobs/{followed.job}/results?after={since}")) as stream:
            if stream.status != 200:
                return False
            until, complete = int(stream.headers["X-Next-After"]), stream.headers["X-Complete"]
            # Only in the middle of a long one, so that it is one.
            asked = break_off("stream") if until - since > 1000 else None
            for line in stream:
                lines.append(line)
                if asked and len(lines) >= 300:
                    break
    except GONE as error:
        ledger.write("broken", job=followed.job, after=since, lines=len(lines), error=repr(error))
        return False
    finally:
        _take(followed, api, ledger, lines, generation)
    if asked:
        asked.set_result(
            {"job": followed.job, "read": [since + 1, followed.after], "of": [since + 1, until]}
        )
        return False
    return complete == "true" and followed.after == until


def _take(
    followed: Followed, api: Api, ledger: Ledger, lines: list[bytes], generation: int
) -> None:
    """Notes what was read, if the job is still of that generation."""
    _look(followed, api)
    if not lines or followed.generation != generation:
        return
    since = followed.after
    for line in lines:
        seq = json.loads(line)["seq"]
        if seq != followed.after + 1:
            followed.out_of_order += 1
        followed.after = seq
        followed.note(seq, line)
    followed.read += len(lines)
    ledger.write("read", job=followed.job, generation=generation, after=since, until=followed.after)
