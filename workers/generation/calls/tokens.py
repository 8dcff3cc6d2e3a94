"""Calls that ask for the tokens of a prompt, or for the text of tokens, and generate nothing."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from jobs import clock
from jobs.calls.lanes import TOO_LATE
from jobs.calls.messages import Call, Reply, Told
from jobs.models.inputs.generation import parse
from workers.engines.generator import Generator
from workers.engines.protocol import InvalidInput, RateLimited
from workers.generation.calls.intake import Taken
from workers.generation.completion import storable
from workers.generation.preparation import prompt_of, told_of, unbilled

CANCELLED = ("cancelled", "its client left")
MOST_WAITING = 256
"""Calls that wait or are being answered; further ones are to be sent again."""
_THREADS = 4
_AGAIN_S = 1.0


class TokenCalls:
    """Answers them on threads of their own: texts may be long, and the server of an upstream slow.

    reply: gets replies, from any of these threads, or from that of `take_out`."""

    def __init__(
        self, engine: Generator, reply: Callable[[Sequence[tuple[Call, Reply]]], None]
    ) -> None:
        self._engine, self._reply = engine, reply
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="tokens")
        self._lock = threading.Lock()
        self._waiting: dict[int, Call] = {}  # by the number of its take here
        self._taken = 0
        self._cancelled = set[int]()

    def take_out(self, taken: Sequence[Taken]) -> Sequence[Taken]:
        """Answers those of the calls that were taken; returns the others."""
        others = []
        for one in taken:
            if told := told_of(one[0]):
                self._put(one[0], told)
            else:
                others.append(one)
        return others

    def cancel(self, ids: Sequence[str]) -> None:
        """Ends calls that were dropped and that no thread has begun with."""
        with self._lock:
            self._cancelled |= {n for n, call in self._waiting.items() if call.id in ids}

    def close(self) -> None:
        """Returns once all have their replies."""
        self._threads.shutdown()

    def _put(self, call: Call, told: Told) -> None:
        with self._lock:
            if fits := len(self._waiting) < MOST_WAITING:
                self._taken += 1
                self._waiting[self._taken] = call
                self._threads.submit(self._answer, self._taken, call, told)
        if not fits:
            full = f"{MOST_WAITING} calls for tokens wait already: send it again later"
            self._reply([unbilled(call, RateLimited(full, _AGAIN_S))])

    def _answer(self, number: int, call: Call, told: Told) -> None:
        with self._lock:
            is_cancelled = number in self._cancelled
        if is_cancelled or call.deadline_ms <= clock.monotonic() * 1000:
            _, reply = unbilled(call, None)
            error = CANCELLED if is_cancelled else TOO_LATE
            ended = call, replace(reply, output=None, error=error)
        else:
            ended = unbilled(call, self._told(call, told))
        with self._lock:
            del self._waiting[number]
            self._cancelled.discard(number)
        self._reply([ended])

    def _told(self, call: Call, told: Told) -> Any:
        try:
            asked = prompt_of(call)
            if told == "text":
                return {"prompt": storable(self._engine.detokenize(asked["prompt"]))}
            found = self._engine.tokenize(parse(asked))
        except ValueError as error:
            return error if isinstance(error, InvalidInput) else InvalidInput(str(error))
        except Exception as error:
            return error
        names = {"token_strs": list(map(storable, found.texts))} if told == "token_strs" else {}
        return {"tokens": found.tokens, "max_model_len": found.context_tokens, **names}
