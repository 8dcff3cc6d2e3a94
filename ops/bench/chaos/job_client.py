"""Client that follows its job to the end: verbs, and results in order while it runs."""

import json
from array import array
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from hashlib import blake2b
from random import Random
from typing import Any

from jobs import clock
from jobs.states import TERMINAL
from ops.bench.chaos.client import CONNECTION_ERRORS, Api
from ops.bench.chaos.ledger import Ledger
from ops.bench.chaos.workload import Work

_POLL_S = 0.2
_FOLLOWED_FOR_S = 600.0
_READ_AGAIN = 0.3  # share of the jobs that are read once more, from the start

BreakOff = Callable[[str], "Future[dict[str, Any]] | None"]


@dataclass
class Followed:
    """Job that was acknowledged, and what its client has read."""

    work: Work
    job: str
    verbs: list[tuple[float, str]]  #: still to come: (delay in s, verb)
    may_expire: bool
    may_cancel: bool = False
    generation: int = 1
    seen: "array[int]" = field(default_factory=lambda: array("Q"))  #: digests of results
    after: int = -1  #: seq that was read last
    read: int = 0
    out_of_order: int = 0  #: errors of the api
    changed: int = 0  #: results that changed; errors of the api

    def __post_init__(self) -> None:
        self.may_cancel = any(verb == "cancel" for _, verb in self.verbs)
        self.seen = array("Q", bytes(8 * self.work.total))

    def note(self, seq: int, line: bytes) -> None:
        """Records a result that was read: it must not change again."""
        found = digest(line)
        if self.seen[seq] not in (0, found):
            self.changed += 1
        self.seen[seq] = found

    def start_generation(self, generation: int) -> None:
        """Forgets results that did not succeed; the others stay."""
        self.generation, self.after = generation, -1
        self.seen = array("Q", (found if found & 1 else 0 for found in self.seen))


def digest(line: bytes) -> int:
    """Digest of a result line in 64 bits, never 0; the last bit is set if it succeeded."""
    found = int.from_bytes(blake2b(line, digest_size=8).digest())
    good = b'"outcome":"succeeded"' in line
    return found | 1 if good else found & ~1 or 2


def follow(followed: Followed, api: Api, dice: Random, ledger: Ledger, break_off: BreakOff) -> None:
    """Follows a job until it has ended and was read to its end."""
    verb_due_s = _next_verb_s(followed)
    deadline_s = clock.monotonic() + _FOLLOWED_FOR_S
    while True:
        job = _poll(followed, api)
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
    """Uses the next verb, or postpones it; returns when the next one is due."""
    verb = followed.verbs[0][1]
    if verb == "retry" and not ended:
        return clock.monotonic() + _POLL_S
    response = api.retry("POST", f"/jobs/{followed.job}/{verb}")
    if response.status != 200:
        raise RuntimeError(f"{verb} of {followed.job}: {response}")
    followed.verbs.pop(0)
    return _next_verb_s(followed)


def _poll(followed: Followed, api: Api) -> dict[str, Any]:
    response = api.retry("GET", f"/jobs/{followed.job}")
    if response.status != 200:
        raise RuntimeError(f"{followed.job} was acknowledged: {response}")
    job: dict[str, Any] = response.json()
    if job["generation"] != followed.generation:
        followed.start_generation(job["generation"])
    return job


def _read(followed: Followed, api: Api, ledger: Ledger, break_off: BreakOff) -> bool:
    """Reads further results; returns True if all are read. A broken stream is resumed later."""
    since, generation, request = followed.after, followed.generation, None
    lines: list[bytes] = []
    try:
        with api.stream(f"/jobs/{followed.job}/results?after={since}") as (head, stream):
            if head.status != 200:
                return False
            until, complete = int(head.headers["X-Next-After"]), head.headers["X-Complete"]
            # Breaks off long streams only, in their middle.
            request = break_off("stream") if until - since > 1000 else None
            for line in stream:
                lines.append(line)
                if request and len(lines) >= 300:
                    break
    except CONNECTION_ERRORS as error:
        ledger.write("broken", job=followed.job, after=since, lines=len(lines), error=repr(error))
        return False
    finally:
        _take(followed, api, ledger, lines, generation)
    if request:
        request.set_result(
            {"job": followed.job, "read": [since + 1, followed.after], "of": [since + 1, until]}
        )
        return False
    return complete == "true" and followed.after == until


def _take(
    followed: Followed, api: Api, ledger: Ledger, lines: list[bytes], generation: int
) -> None:
    """Records lines, if the job is still of that generation."""
    _poll(followed, api)
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
