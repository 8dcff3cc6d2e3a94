"""Client with one job at a time: submits it, uses verbs, reads its results while it runs."""

import json
from array import array
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from hashlib import blake2b
from random import Random
from typing import Any
from urllib.parse import urlencode

import httpx

from jobs import clock
from jobs.states import TERMINAL
from ops.bench.chaos.clients.client import CONNECTION_ERRORS, Api, Ledger, transient
from ops.bench.chaos.clients.workload import Work
from ops.bench.load.client import JSON, NDJSON, ndjson_blocks

_POLL_S = 0.2
_FOLLOWED_FOR_S = 600.0
_READ_AGAIN = 0.3  # share of the jobs that are read once more, from the start
_JSON_ITEMS = 500  # more are streamed
_BLOCK_LINES = 500

#: Request to break off an "upload" or a "stream" now, if any; its result is the proof.
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

    def reach(self, generation: int) -> None:
        """Forgets, in a new generation, results that did not succeed; the others stay."""
        if generation != self.generation:
            self.generation, self.after = generation, -1
            self.seen = array("Q", (found if found & 1 else 0 for found in self.seen))


def digest(line: bytes) -> int:
    """Digest of a result line in 64 bits, never 0; the last bit is set if it succeeded."""
    found = int.from_bytes(blake2b(line, digest_size=8).digest())
    good = b'"outcome":"succeeded"' in line
    return found | 1 if good else found & ~1 or 2


class JobClient:
    """Client of one thread."""

    def __init__(self, api: Api, dice: Random, ledger: Ledger, break_off: BreakOff) -> None:
        self._api, self._dice, self._ledger, self._break_off = api, dice, ledger, break_off

    def tear(self, work: Work) -> dict[str, Any]:
        """Breaks off an upload; returns the proof."""
        torn = Work(work.tag, work.model, max(2, work.total // 2))
        path = "/jobs?" + urlencode({"model": work.model, "metadata": _metadata(work)})
        while True:
            try:
                sent = self._api.break_off(path, list(_blocks(torn)), NDJSON)
                return {"tag": work.tag, "bytes_sent": sent}
            except CONNECTION_ERRORS:
                clock.sleep(0.2)

    def submit(self, work: Work) -> Followed:
        """Job that was acknowledged. Raises RuntimeError where it is refused."""
        verbs, expires_in_s = _verbs(self._dice)
        query = {"model": work.model, "metadata": _metadata(work)}
        if expires_in_s is not None:
            query["expires_in_s"] = str(expires_in_s)
        as_json = work.total <= _JSON_ITEMS and self._dice.random() < 0.5
        while True:
            try:
                answer = self._post(work, query, as_json)
            except CONNECTION_ERRORS as error:
                self._ledger.write("unacknowledged", tag=work.tag, error=repr(error))
            else:
                if answer.status_code == 202:
                    job = answer.json()["id"]
                    self._ledger.write("acknowledged", tag=work.tag, job=job, total=work.total)
                    return Followed(work, job, verbs, expires_in_s is not None)
                if not transient(answer):
                    raise RuntimeError(f"{work.tag} was refused: {answer} {answer.text}")
            clock.sleep(self._dice.uniform(0.1, 0.5))

    def _post(self, work: Work, query: Mapping[str, str], as_json: bool) -> httpx.Response:
        key = {"Idempotency-Key": f'"{work.tag}"'}
        if not as_json:
            path = "/jobs?" + urlencode(query)
            return self._api.request("POST", path, _blocks(work), {**NDJSON, **key})
        body: dict[str, Any] = {**query, "metadata": json.loads(query["metadata"])}
        if "expires_in_s" in body:
            body["expires_in_s"] = float(body["expires_in_s"])
        raw = json.dumps(body | {"items": list(work.items())}).encode()
        return self._api.request("POST", "/jobs", raw, {**JSON, **key})

    def follow(self, followed: Followed) -> None:
        """Follows a job until it has ended and was read to its end."""
        verb_due_s = _next_verb_s(followed)
        deadline_s = clock.monotonic() + _FOLLOWED_FOR_S
        while True:
            job = self._poll(followed)
            ended = job["state"] in TERMINAL
            if followed.verbs and clock.monotonic() >= verb_due_s:
                verb_due_s = self._use_verb(followed, ended)
                continue
            complete = self._read(followed)
            if ended and complete and not followed.verbs:
                if self._dice.random() < _READ_AGAIN:
                    followed.after = -1
                    self._read(followed)
                return
            if clock.monotonic() > deadline_s:
                raise TimeoutError(f"{followed.job} of {followed.work} is still {job['state']}")
            clock.sleep(_POLL_S)

    def _use_verb(self, followed: Followed, ended: bool) -> float:
        """Uses the next verb, or postpones it; returns when the next one is due."""
        verb = followed.verbs[0][1]
        if verb == "retry" and not ended:
            return clock.monotonic() + _POLL_S
        response = self._api.retry("POST", f"/jobs/{followed.job}/{verb}")
        if response.status_code != 200:
            raise RuntimeError(f"{verb} of {followed.job}: {response} {response.text}")
        followed.verbs.pop(0)
        return _next_verb_s(followed)

    def _poll(self, followed: Followed) -> dict[str, Any]:
        response = self._api.retry("GET", f"/jobs/{followed.job}")
        if response.status_code != 200:
            raise RuntimeError(f"{followed.job} was acknowledged: {response} {response.text}")
        job: dict[str, Any] = response.json()
        followed.reach(job["generation"])
        return job

    def _read(self, followed: Followed) -> bool:
        """Reads further results; returns True if all are read. A broken stream is resumed later."""
        since, generation, request = followed.after, followed.generation, None
        lines: list[bytes] = []
        try:
            with self._api.stream(f"/jobs/{followed.job}/results?after={since}") as (head, stream):
                if head.status_code != 200:
                    return False
                until, complete = int(head.headers["X-Next-After"]), head.headers["X-Complete"]
                # Breaks off long streams only, in their middle.
                request = self._break_off("stream") if until - since > 1000 else None
                for line in stream:
                    lines.append(line)
                    if request and len(lines) >= 300:
                        break
        except CONNECTION_ERRORS as error:
            what = {"job": followed.job, "after": since, "lines": len(lines), "error": repr(error)}
            self._ledger.write("broken", **what)
            return False
        finally:
            self._take(followed, lines, generation)
        if request:
            read, of = [since + 1, followed.after], [since + 1, until]
            request.set_result({"job": followed.job, "read": read, "of": of})
            return False
        return complete == "true" and followed.after == until

    def _take(self, followed: Followed, lines: list[bytes], generation: int) -> None:
        """Records lines, if the job is still of that generation."""
        self._poll(followed)
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
        what = {"job": followed.job, "generation": generation}
        self._ledger.write("read", **what, after=since, until=followed.after)


def _metadata(work: Work) -> str:
    return json.dumps({"chaos": work.tag})


def _blocks(work: Work) -> Iterator[bytes]:
    return ndjson_blocks(work.items(), _BLOCK_LINES)


def _next_verb_s(followed: Followed) -> float:
    return clock.monotonic() + (followed.verbs[0][0] if followed.verbs else 0.0)


def _verbs(dice: Random) -> tuple[list[tuple[float, str]], float | None]:
    """Returns (verbs of a job, each with its delay in s after the one before; expires_in_s)."""
    soon, later = round(dice.uniform(0, 2), 2), round(dice.uniform(0, 2), 2)
    plots: list[tuple[list[tuple[float, str]], float | None]] = [
        ([], None),
        ([(soon, "cancel")], None),
        ([(soon, "pause"), (later, "resume")], None),
        ([(soon, "cancel"), (later, "retry")], None),
        ([(later, "retry")], 3 * soon + 0.1),
        ([(later, "retry")], None),
    ]
    return dice.choices(plots, (60, 10, 12, 6, 6, 6))[0]
