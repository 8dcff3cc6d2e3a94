"""Generator of the engine `server`: starts an inference server, and streams chats from it.

The server that ends, or hangs, is started again by `restart`, as any generator that died: sequences
without a token yet are sent to the new one; the others go on where the server continues a text that
another began, and end with an error elsewhere.
"""

import os
import secrets
import socket
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from jobs import clock
from jobs.artifacts.declared import verified
from jobs.models.engines.server_options import ServerOptions
from jobs.models.inputs.generation import GenerationRequest
from jobs.models.model import Model
from workers.engines.generator import (
    Capacity,
    Emitted,
    GeneratorDied,
    NewSequence,
    Prompt,
    Step,
    Tokenized,
)
from workers.engines.protocol import InvalidInput, Room, Transient
from workers.engines.server import command_lines
from workers.engines.server.health import HealthCheck, HealthWatch
from workers.engines.server.memory import memory_mb
from workers.engines.server.process import ServerProcess
from workers.engines.server.version import check_version
from workers.engines.upstream import secrets as upstream_secrets
from workers.engines.upstream.streaming.openai_generator import OpenAIGenerator

_LOOK_S = 0.1  # while it starts
_ENDING_S = 0.5  # from a broken connection to the end of a server that died
_CHECK_S = 5.0  # for an answer of a server that starts
_AGAIN_S = 1.0  # for which calls are told to come back while it starts again
_BROKEN_OFF = "the server ended in the middle of the answer; it was started again"


class ServerGenerator:
    """Server of one model; options: `server_options.ServerOptions`. device: of the worker.

    Raises ValueError where program, version or model aren't the declared ones, and, with the end of
    its log, GeneratorDied where the server ends, RuntimeError where it isn't healthy in time.
    """

    def __init__(self, model: Model, device: str) -> None:
        self._model, self._device = model, device
        self._options = options = ServerOptions(**model.options)
        if options.sha256:
            verified(Path(options.path), options.sha256)
        if command := command_lines.version_command(options):
            check_version(options.version, command, self._environment({}))
        self._broken: list[Emitted] = []  # ends of sequences that can't go on
        self._up = False
        self._start()

    @property
    def capacity(self) -> Capacity:
        """Bounds: those of the options; blocks aren't known."""
        return self._client.capacity

    @property
    def pid(self) -> int:
        """Id of the guardian of the server."""
        return self._server.pid

    def room(self) -> Room:
        """Returns the sequences that the server takes now; none while it starts again."""
        return self._client.room() if self._up else Room(0, _AGAIN_S, items=0)

    def prepare(self, inputs: Sequence[Any]) -> list[Prompt | InvalidInput]:
        """Prepares inputs, as `Generator.prepare`; sizes are estimates."""
        return self._client.prepare(inputs)

    def tokenize(self, request: GenerationRequest) -> Tokenized:
        """Asks the server, as `Generator.tokenize`."""
        return self._client.tokenize(request)

    def detokenize(self, tokens: Sequence[int]) -> str:
        """Asks the server, as `Generator.detokenize`."""
        return self._client.detokenize(tokens)

    def add(self, sequence: NewSequence) -> None:
        """Adds a sequence; one that another server began ends in the next step."""
        if sequence.emitted and not self.capacity.takes_over:
            self._broken.append(Emitted(sequence.id, error=Transient(_BROKEN_OFF)))
        else:
            self._client.add(sequence)

    def abort(self, id: str) -> None:
        """Closes the connection of a sequence, or forgets one that waits."""
        self._broken = [one for one in self._broken if one.id != id]
        self._client.abort(id)

    def step(self, max_prefill_tokens: int, prefills: Sequence[str] = ()) -> Step:
        """Returns what has arrived within a moment. Raises GeneratorDied once the server has ended,
        or sequences got nothing for `limits.max_launch_s`."""
        if self._broken:
            step, self._broken = Step(self._broken), []
            return step
        if why := self._server.why_ended():
            self._up = False
            raise GeneratorDied(why, outside=self._server.ended_from_outside)
        step = self._client.step(max_prefill_tokens, prefills)
        whole = [one for one in step.emitted if not isinstance(one.error, Transient)]
        if len(whole) < len(step.emitted) and self._server.why_ended(_ENDING_S):
            # The next step tells of its death; the host adds what failed by it again.
            return replace(step, emitted=whole)
        self._watch_progress(step)
        return step

    def _watch_progress(self, step: Step) -> None:
        now_s = clock.monotonic()
        if step.emitted or not step.sequences:
            self._progress_s = now_s
        elif now_s - self._progress_s > (limit_s := self._model.limits.max_launch_s):
            self._server.stop(f"had no token for {step.sequences} sequences in {limit_s} s")

    def restart(self) -> None:
        """Starts the server again. Raises as the constructor does."""
        self._stop()
        self._start()

    def memory_mb(self) -> float:
        """Returns the memory of the server, MiB; 0 where it isn't known."""
        devices = self._environment({}).get("CUDA_VISIBLE_DEVICES", self._device)
        return memory_mb(self.pid, on_cpu=devices in ("", "cpu"))

    def close(self) -> None:
        """Ends the server, which gets a moment for it."""
        self._stop()

    def _environment(self, added: Mapping[str, str]) -> dict[str, str]:
        own = {
            name: upstream_secrets.resolve(text, f"options.environment.{name}")[0]
            for name, text in self._options.environment.items()
        }
        inherited = command_lines.inherited_environment(self._options, self._device, os.environ)
        return {**inherited, **added, **own}

    def _start(self) -> None:
        port, key = _free_port(), secrets.token_urlsafe(24)
        command = command_lines.command_line(self._options, port, key)
        environment = self._environment(command.environment)
        self._server = ServerProcess(self._model.key, command.argv, environment)
        self._health = HealthCheck(port, self._options.health)
        try:
            self._await_health()
        except BaseException:
            self._server.stop()
            self._health.close()
            raise
        self._client = OpenAIGenerator(
            self._model, self._options.upstream(port), {"Authorization": f"Bearer {key}"}
        )
        limit_s = self._model.limits.max_launch_s
        self._watch = HealthWatch(self._health, limit_s, self._server.stop)
        self._progress_s, self._up = clock.monotonic(), True

    def _await_health(self) -> None:
        until_s = clock.monotonic() + self._options.ready_s
        while not self._health.passes(_CHECK_S):
            if why := self._server.why_ended():
                message = f"the server of {self._model.key} doesn't start: {why}"
                raise GeneratorDied(message, outside=self._server.ended_from_outside)
            if clock.monotonic() > until_s:
                self._server.stop(f"was not ready within ready_s = {self._options.ready_s:g} s")
                raise RuntimeError(f"the server of {self._model.key} {self._server.why_ended()}")
            clock.sleep(_LOOK_S)

    def _stop(self) -> None:
        self._up = False
        self._watch.close()
        self._server.stop()
        self._client.close()
        self._health.close()


def _free_port() -> int:
    """Returns a port of loopback on which nothing listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
