"""Calls that ask for the tokens of a prompt, or for the text of tokens, and generate nothing."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from jobs import clock
from jobs.calls.messages import Call, Reply, Told
from jobs.models.inputs.generation import parse
from workers.engines.generator import Generator
from workers.engines.protocol import InvalidInput
from workers.generation.calls.intake import Taken
from workers.generation.completion import storable
from workers.generation.preparation import prompt_of, told_of, unbilled


class TokenCalls:
    """Answers them one after another, on a thread of their own: texts may be long, and the server
    of an upstream slow.

    reply: gets replies, from that thread."""

    def __init__(
        self, engine: Generator, reply: Callable[[Sequence[tuple[Call, Reply]]], None]
    ) -> None:
        self._engine, self._reply = engine, reply
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="tokens")

    def take_out(self, taken: Sequence[Taken]) -> Sequence[Taken]:
        """Answers those of the calls that were taken; returns the others."""
        others = []
        for one in taken:
            if told := told_of(one[0]):
                self._thread.submit(self._answer, one[0], told)
            else:
                others.append(one)
        return others

    def close(self) -> None:
        """Returns once all have their replies."""
        self._thread.shutdown()

    def _answer(self, call: Call, told: Told) -> None:
        late = call.deadline_ms <= clock.monotonic() * 1000
        output = TimeoutError("its deadline has passed") if late else self._told(call, told)
        self._reply([unbilled(call, output)])

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
