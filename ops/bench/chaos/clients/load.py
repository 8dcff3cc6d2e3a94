"""Clients: each submits a job, uses verbs on it, reads it until it has ended; then the next.

One more makes calls, another one reads streams.
"""

import json
import threading
from concurrent.futures import Future
from dataclasses import replace
from queue import Empty, SimpleQueue
from random import Random
from typing import Any

from jobs import clock
from ops.bench.chaos.clients.client import CONNECTION_ERRORS, Api, Ledger, transient
from ops.bench.chaos.clients.job_client import Followed, JobClient
from ops.bench.chaos.clients.streams import StreamClients
from ops.bench.chaos.clients.workload import Work, invent
from ops.bench.load.client import JSON

CLIENTS = 10
_CALL_EVERY_S = 0.1


class Load:
    """Threads of the clients.

    followed: jobs that were acknowledged; torn: tags of uploads that were broken off; answered_s,
    ended_s: times at which calls were answered and jobs had ended, on the process's clock.
    """

    def __init__(self, ports: list[int], redis_url: str, seed: int, ledger: Ledger) -> None:
        self._ports, self._seed, self._ledger = ports, seed, ledger
        self._closing = threading.Event()
        self._wanted: dict[str, SimpleQueue[Future[dict[str, Any]]]] = {
            what: SimpleQueue() for what in ("upload", "stream")
        }
        self._threads = [
            threading.Thread(target=self._run, args=[number], daemon=True)
            for number in range(CLIENTS + 2)
        ]
        self.followed: list[Followed] = []
        self.works: dict[str, Work] = {}
        self.torn: list[str] = []
        self.troubles: list[str] = []
        self.calls = self.calls_answered = 0
        self.answered_s, self.ended_s = list[float](), list[float]()
        self.streams = StreamClients(ports, redis_url, seed, ledger, self.troubles)

    def start(self) -> None:
        """Starts the clients."""
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

    def _run(self, number: int) -> None:
        """Runs a client; its failure is a finding, not the end of the run."""
        dice = Random(f"{self._seed}/{number}")
        api = Api(self._ports, dice)
        try:
            if number < CLIENTS:
                self._submit_jobs(number, JobClient(api, dice, self._ledger, self.break_off), dice)
            elif number == CLIENTS:
                self._make_calls(api, dice)
            else:
                self.streams.run(self._closing)
        except Exception as error:
            self.troubles.append(f"client {number}: {error!r}")
            self._ledger.write("trouble", client=number, error=repr(error))

    def _submit_jobs(self, number: int, client: JobClient, dice: Random) -> None:
        jobs = 0
        while not self._closing.is_set():
            jobs += 1
            work = invent(f"{self._seed}-{number}-{jobs}", dice)
            if asked := self.break_off("upload"):
                self.torn.append(f"{work.tag}-torn")
                asked.set_result(client.tear(replace(work, tag=self.torn[-1])))
            self.works[work.tag] = work
            followed = client.submit(work)
            self.followed.append(followed)
            client.follow(followed)
            self.ended_s.append(clock.monotonic())

    def _make_calls(self, api: Api, dice: Random) -> None:
        """Makes calls, which may be refused or time out; an answer must be right."""
        while not self._closing.wait(_CALL_EVERY_S):
            self.calls += 1
            model, text = dice.choice(("echo", "shout")), f"call {self.calls}"
            body = json.dumps({"model": model, "input": text, "timeout_ms": 5000}).encode()
            try:
                answer = api.request("POST", "/infer", body, JSON)
            except CONNECTION_ERRORS:
                continue
            if answer.status_code == 200:
                self.calls_answered += 1
                self.answered_s.append(clock.monotonic())
                if answer.json()["output"] != (text if model == "echo" else text.upper()):
                    self.troubles.append(f"wrong call: {answer.text}")
            elif not transient(answer):
                self.troubles.append(f"a call was refused: {answer} {answer.text}")
