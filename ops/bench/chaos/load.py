"""Clients: each submits a job, uses verbs on it, reads it until it has ended; then the next.

One more makes calls.
"""

import json
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from random import Random
from typing import Any
from urllib.parse import urlencode

from jobs import clock
from ops.bench.chaos.client import CONNECTION_ERRORS, Api, Response
from ops.bench.chaos.job_client import Followed, follow
from ops.bench.chaos.ledger import Ledger
from ops.bench.chaos.workload import Work, invent
from ops.bench.load.client import ndjson_blocks

CLIENTS = 10
_CALL_EVERY_S = 0.1
_JSON_ITEMS = 500  # more are streamed
_BLOCK_LINES = 500
_JSON = {"Content-Type": "application/json"}
_NDJSON = {"Content-Type": "application/x-ndjson"}


class Load:
    """Threads of the clients.

    followed: jobs that were acknowledged; torn: tags of uploads that were broken off.
    """

    def __init__(self, ports: list[int], seed: int, ledger: Ledger) -> None:
        self._ports, self._seed, self._ledger = ports, seed, ledger
        self._closing = threading.Event()
        self._wanted: dict[str, SimpleQueue[Future[dict[str, Any]]]] = {
            what: SimpleQueue() for what in ("upload", "stream")
        }
        self._threads = [
            threading.Thread(target=self._guarded, args=(self._client, n), daemon=True)
            for n in range(CLIENTS)
        ]
        caller = threading.Thread(target=self._guarded, args=(self._caller, CLIENTS), daemon=True)
        self._threads.append(caller)
        self.followed: list[Followed] = []
        self.works: dict[str, Work] = {}
        self.torn: list[str] = []
        self.troubles: list[str] = []
        self.calls = self.calls_answered = 0
        self.keys = False

    def start(self) -> None:
        """Starts the clients."""
        self.keys = self._takes_keys()
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Stops new jobs; open ones are followed to their end."""
        self._closing.set()

    def over(self) -> bool:
        """Returns True if all clients have ended."""
        return not any(thread.is_alive() for thread in self._threads)

    def ask_to_break_off(self, what: str) -> "Future[dict[str, Any]]":
        """Makes the next client break off its upload or its stream; the result is its proof."""
        asked: Future[dict[str, Any]] = Future()
        self._wanted[what].put(asked)
        return asked

    def break_off(self, what: str) -> "Future[dict[str, Any]] | None":
        """Request that a client shall break off now, if any."""
        try:
            return self._wanted[what].get_nowait()
        except Empty:
            return None

    def _takes_keys(self) -> bool:
        body = json.dumps({"model": "echo", "items": ["probe"]}).encode()
        answer = Api(self._ports, Random(0)).request(
            "POST", "/jobs", body, _JSON | {"Idempotency-Key": f'"probe-{self._seed}"'}
        )
        return answer.status == 202

    def _guarded(self, run: Any, number: int) -> None:
        """Runs a client; its failure is a finding, not the end of the run."""
        try:
            run(number, Random(f"{self._seed}/{number}"))
        except Exception as error:
            self.troubles.append(f"client {number}: {error!r}")
            self._ledger.write("trouble", client=number, error=repr(error))

    # -- jobs

    def _client(self, number: int, dice: Random) -> None:
        api = Api(self._ports, dice)
        jobs = 0
        while not self._closing.is_set():
            jobs += 1
            work = invent(f"{self._seed}-{number}-{jobs}", dice)
            if asked := self.break_off("upload"):
                asked.set_result(self._tear(api, work))
            followed = self._submit(api, work, dice)
            if followed:
                self.followed.append(followed)
                follow(followed, api, dice, self._ledger, self.break_off)

    def _tear(self, api: Api, work: Work) -> dict[str, Any]:
        tag = f"{work.tag}-torn"
        self.torn.append(tag)
        path = "/jobs?" + urlencode({"model": work.model, "metadata": _metadata(tag)})
        blocks = list(_blocks(Work(tag, work.model, max(2, work.total // 2))))
        while True:
            try:
                return {"tag": tag, "bytes_sent": api.break_off(path, blocks, _NDJSON)}
            except CONNECTION_ERRORS:
                clock.sleep(0.2)

    def _submit(self, api: Api, work: Work, dice: Random) -> Followed | None:
        """Job that was acknowledged; None where the api takes no keys and its fate is unknown."""
        verbs, expires_in_s = _verbs(dice)
        query = {"model": work.model, "metadata": _metadata(work.tag)}
        if expires_in_s is not None:
            query["expires_in_s"] = str(expires_in_s)
        as_json = work.total <= _JSON_ITEMS and dice.random() < 0.5
        self.works[work.tag] = work
        while True:
            try:
                answer = self._post(api, work, query, as_json)
            except CONNECTION_ERRORS as error:
                self._ledger.write("unacknowledged", tag=work.tag, error=repr(error))
                if not self.keys:
                    return None
                answer = None
            if answer and answer.status == 202:
                job = answer.json()["id"]
                self._ledger.write("acknowledged", tag=work.tag, job=job, total=work.total)
                return Followed(work, job, verbs, expires_in_s is not None)
            if answer and not answer.transient:
                raise RuntimeError(f"{work.tag} was refused: {answer}")
            if answer and not self.keys and answer.status >= 500:
                return None
            clock.sleep(dice.uniform(0.1, 0.5))

    def _post(self, api: Api, work: Work, query: dict[str, str], as_json: bool) -> Response:
        key = {"Idempotency-Key": f'"{work.tag}"'} if self.keys else {}
        if not as_json:
            return api.request("POST", "/jobs?" + urlencode(query), _blocks(work), _NDJSON | key)
        fields: dict[str, Any] = dict(query) | {"metadata": json.loads(query["metadata"])}
        if "expires_in_s" in fields:
            fields["expires_in_s"] = float(fields["expires_in_s"])
        body = json.dumps(fields | {"items": list(work.texts())}).encode()
        return api.request("POST", "/jobs", body, _JSON | key)

    # -- calls

    def _caller(self, number: int, dice: Random) -> None:
        """Makes calls, which may be refused or time out; an answer must be right."""
        api = Api(self._ports, dice)
        while not self._closing.wait(_CALL_EVERY_S):
            self.calls += 1
            model, text = dice.choice(("echo", "shout")), f"call {self.calls}"
            body = json.dumps({"model": model, "input": text, "timeout_ms": 5000}).encode()
            try:
                answer = api.request("POST", "/infer", body, _JSON)
            except CONNECTION_ERRORS:
                continue
            if answer.status == 200:
                self.calls_answered += 1
                if answer.json()["output"] != (text if model == "echo" else text.upper()):
                    self.troubles.append(f"wrong call: {answer}")
            elif not answer.transient:
                self.troubles.append(f"a call was refused: {answer}")


def _metadata(tag: str) -> str:
    return json.dumps({"chaos": tag})


def _blocks(work: Work) -> Iterator[bytes]:
    return ndjson_blocks(work.texts(), _BLOCK_LINES)


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
