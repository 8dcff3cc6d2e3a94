"""A worker of generating models that does what a test tells it, on real lanes."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import orjson
import redis

from jobs.calls.keys import reply_key
from jobs.calls.lanes import Ticket
from jobs.calls.messages import Call, ChoiceDelta, Delta, Reply, pack_deltas
from jobs.calls.redis import RedisLanes
from jobs.calls.streams.log import Progress
from tests.support.clients import repeated
from tests.support.wait import eventually

WORKER, SLOT = "w", "w/0"
_LEASE_S = 300.0


class FakeGenerationWorker:
    """Takes calls of one model, and sends the deltas and replies that the test wants."""

    def __init__(self, client: "redis.Redis", model: str) -> None:
        """model: name@version."""
        self._client, self.lanes = client, RedisLanes(client, model)
        self.lanes.announce(WORKER, _LEASE_S)
        self.sent: dict[str, int] = {}  #: deltas by call
        self._cancelled: list[str] = []

    def take(self) -> Call:
        return eventually(self.take_if_any)

    def take_if_any(self) -> Call | None:
        state = self.lanes.look(SLOT)
        if not state.lanes:
            return None
        lane, lease_ms = state.lanes[0].lane, _LEASE_S * 1000
        ticket = Ticket(lane, 1, 0, state.now_ms, 1, 0, "pace", WORKER, SLOT, lease_ms)
        calls = self.lanes.take(ticket)
        return calls[0] if calls else None

    def push(self, call: Call, *choices: ChoiceDelta, number: int | None = None) -> None:
        """Sends one delta; number: in place of the right one."""
        right = self.sent.get(call.id, 0)
        self.sent[call.id] = right + 1
        delta = Delta(call.id, right if number is None else number, choices)
        if delta.number == right:
            self.lanes.stream([Progress(call, delta)])
        else:  # as it is never logged
            self._client.rpush(reply_key(call.reply_to), pack_deltas([delta]))

    def cancelled(self) -> list[str]:
        self._cancelled += self.lanes.wait_for_dropped(WORKER, 0.001)
        return self._cancelled

    def reply(self, call: Call, output: Any, **timing: Any) -> None:
        timing = {"queue_ms": 1.0, "prefill_ms": 2.0, "decode_ms": 3.0, "ttft_ms": 3.0, **timing}
        timing.setdefault("deltas", self.sent.get(call.id, 0))
        reply = Reply(
            call.id,
            orjson.dumps(output),
            None,
            call.size,
            timing,
            call.tenant,
            adapter=call.adapter,
        )
        self.lanes.end([(call, reply)])

    def fail(self, call: Call, code: str, message: str) -> None:
        self.lanes.end([(call, Reply(call.id, None, (code, message), call.size, {}))])

    def answer(self, call: Call, words: Sequence[str]) -> None:
        """Sends words as tokens, each in a delta, then the whole."""
        for n, word in enumerate(words):
            finish = "stop" if n == len(words) - 1 else None
            if call.stream:
                self.push(call, ChoiceDelta(0, word, (n,), (), finish))
        chat = "messages" in call.input
        self.reply(call, completion("".join(words), len(words), chat=chat))


@contextmanager
def answering(worker: FakeGenerationWorker, words: Sequence[str]) -> Iterator[None]:
    """Answers every call with the same words, on a thread."""

    def work(_: int) -> None:
        if call := worker.take_if_any():
            worker.answer(call, words)

    with repeated(work, callers=1, pause_s=0.002):
        yield


def completion(text: str, tokens: int, *, chat: bool = True, finish: str = "stop") -> Any:
    """Returns an output as a generation host makes it."""
    usage = {"prompt_tokens": 3, "completion_tokens": tokens, "total_tokens": 3 + tokens}
    choice: dict[str, Any] = {"index": 0, "logprobs": None, "finish_reason": finish}
    if chat:
        choice["message"] = {"role": "assistant", "content": text, "refusal": None}
    else:
        choice["text"] = text
    kind = "chat.completion" if chat else "text_completion"
    head = {"id": "x", "object": kind, "created": 1, "model": "m"}
    return {**head, "choices": [choice], "usage": usage}
