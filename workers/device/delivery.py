"""Delivery of a launch's outputs: replies to calls, outcomes to slices."""

import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from jobs import clock
from jobs.calls.messages import Call
from jobs.models.inputs import chat
from jobs.models.model import Model
from jobs.telemetry.metrics import record
from workers.device.call_puller import CallPuller
from workers.device.monitoring.rollout_records import LaunchRecords, RecordStreams
from workers.device.monitoring.tracing import LaunchTrace
from workers.engines.protocol import Metered
from workers.items.in_flight import InFlightSlice, ItemOutcome, end_together
from workers.scheduler.entries import Entry, Launch

_FEW = 64
"""Items whose outcomes take less time than another thread takes to wake."""

OnLaunch = Callable[[Model, Launch], int]
"""Records a launch that had items; returns its id."""


class Delivery:
    """Delivers the outputs of one model's launches. Replies are sent by a thread of their own, and
    many outcomes counted by another: the next launch waits for neither."""

    def __init__(
        self, model: Model, puller: CallPuller, on_launch: OnLaunch, records: RecordStreams
    ) -> None:
        self._model, self._puller, self._on_launch = model, puller, on_launch
        self._chats = model.effective_task == "chat"
        self._records = LaunchRecords(model, records)
        self._replies = ThreadPoolExecutor(1, thread_name_prefix=f"replies-{model.name}")
        self._outcomes = ThreadPoolExecutor(1, thread_name_prefix=f"outcomes-{model.name}")

    def deliver(self, launch: Launch, outputs: Sequence[Any], trace: LaunchTrace | None) -> None:
        """Replies to the calls of a launch, and adds its items' outcomes to their slices. outputs:
        one an entry."""
        outputs, launch_id = _unmeter(launch, outputs), None
        if self._chats:
            _count_tokens(launch, outputs)
        if launch.calls:
            self._replies.submit(self._reply, launch, outputs[: len(launch.calls)])
        if launch.items:
            launch_id = self._on_launch(self._model, launch)
            end = partial(_end_items, launch, outputs[len(launch.calls) :], launch_id)
            if len(launch.items) > _FEW:
                self._outcomes.submit(_call_or_die, end)
            else:
                end()
        if trace:
            self._replies.submit(
                trace.record, self._model.key, self._puller.worker, outputs, launch_id
            )

    def reject(self, call: Call, error: Exception, params: Mapping[str, Any]) -> None:
        """Replies to a call that the model rejects, without a launch."""
        entry = Entry(call, 0, call.lane, 0, 0, None, call.enqueued_ms / 1000)
        launch = Launch(params, "pace", [entry], [], clock.monotonic())
        self._replies.submit(self._send, launch, [error])

    def flush(self) -> None:
        """Returns once all replies so far have been sent."""
        self._replies.submit(bool).result()

    def close(self) -> None:
        """Delivers what is left, and ends the threads."""
        self._outcomes.shutdown()
        self._replies.shutdown()

    def _reply(self, launch: Launch, outputs: Sequence[Any]) -> None:
        self._send(launch, outputs)
        ended_s = launch.started_s + launch.engine_s
        record.postprocessed(self._model.key, [clock.monotonic() - ended_s])

    def _send(self, launch: Launch, outputs: Sequence[Any]) -> None:
        self._records.add(launch, self._puller.reply(launch, outputs))


def _unmeter(launch: Launch, outputs: Sequence[Any]) -> list[Any]:
    """Returns the outputs as they are; sets the sizes of entries whose outputs are metered."""
    plain = []
    for entry, output in zip(launch.entries, outputs, strict=True):
        if isinstance(output, Metered):
            entry.size, output = output.size, output.output
        plain.append(output)
    return plain


def _count_tokens(launch: Launch, outputs: Sequence[Any]) -> None:
    """Sets the tokens of entries whose outputs are completions that count them: whatever engine
    made one, its own count is what is billed."""
    for entry, output in zip(launch.entries, outputs, strict=True):
        entry.tokens = chat.usage_of(output)


def _call_or_die(function: Callable[[], None]) -> None:
    """Calls a function on a pool's thread, where an error would be lost: it ends the process, as
    one of any other thread does."""
    try:
        function()
    except BaseException:
        found = (*sys.exc_info(), threading.current_thread())
        threading.excepthook(threading.ExceptHookArgs(found))


def _end_items(launch: Launch, outputs: Sequence[Any], launch_id: int) -> None:
    """Adds the outcomes to their slices, once a claim and launch."""
    device_us = launch.device_us[len(launch.calls) :]
    ended: list[tuple[InFlightSlice, ItemOutcome]] = []
    for entry, output, us in zip(launch.items, outputs, device_us, strict=True):
        waited_ms = (launch.started_s - entry.arrived_s) * 1000
        seq, part = entry.seq, entry.part
        size, used = entry.size, (entry.tokens, entry.truncated)
        outcome = ItemOutcome(seq, size, waited_ms, launch_id, output, us, part, *used)
        ended.append((entry.owner, outcome))
    end_together(ended)
