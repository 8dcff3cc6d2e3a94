"""Recorder of what a generation host does: metrics of steps and requests, their spans."""

import logging
from collections import Counter
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

from jobs.models.model import Model
from jobs.telemetry.metrics import adapters as adapter_metrics
from jobs.telemetry.metrics import generation as metrics
from jobs.telemetry.metrics import record
from jobs.telemetry.metrics.generation import EndedRequest, Kind, PoolState, Targets
from jobs.telemetry.tracing import generation as tracing
from jobs.telemetry.tracing.generation import Generated
from workers.device.monitoring.utilization import Utilization
from workers.engines.adapters.slots import Slots
from workers.engines.generator import AdapterLoaded, Step
from workers.generation.requests import Request, Sequenced
from workers.generation.scheduler import GenerationScheduler
from workers.items.results import outcome

_log = logging.getLogger(__name__)
_POOL_EVERY_S = 0.25
_UNJUDGED = ("cancelled", "invalid_input")  # ends that no target is for


class Recorder:
    """Records for one model of one worker."""

    def __init__(self, model: Model, worker: str, utilization: Utilization | None = None) -> None:
        self._model, self.worker = model, worker
        self._utilization = utilization or Utilization()
        self._targets = Targets(model.target_ttft_ms / 1000, model.itl_target_ms / 1000)
        self._gaps: dict[Kind, list[float]] = {}  # of the step that runs
        self._tenants: set[str] = set()  # that had blocks
        self._pool_due_s = 0.0

    def busy(self) -> AbstractContextManager[None]:
        """Counts the time of a step as one in which the device is busy."""
        return self._utilization.launch()

    def emitted(self, sequence: Sequenced, now_s: float) -> None:
        """Counts tokens of a sequence, which came together."""
        if sequence.latest_s:
            gap_s = now_s - sequence.latest_s
            self._gaps.setdefault(_kind(sequence.request), []).append(gap_s)
        sequence.latest_s = now_s
        sequence.request.token_times.add(now_s)

    def stepped(self, step: Step, scheduler: GenerationScheduler, now_s: float) -> None:
        """Counts a step, after those that it ended have left the scheduler."""
        if step.sequences:
            gaps = {kind: tuple(gaps) for kind, gaps in self._gaps.items()}
            metrics.step_ended(self._model.key, step.duration_s, step.prefill_tokens, gaps)
        self._gaps.clear()
        if now_s >= self._pool_due_s or not scheduler.running:
            self._pool_due_s = now_s + _POOL_EVERY_S
            self._record_pool(step, scheduler)

    def adapter_loaded(self, loaded: AdapterLoaded, slots: Slots) -> None:
        """Counts the end of a load; slots: those of the generator."""
        outcome = "failed" if loaded.error else "ready"
        evicted, key = slots.take_evictions(), self._model.key
        adapter_metrics.loaded(key, outcome, loaded.load_s, evicted, slots.used)
        if loaded.error:
            _log.warning("%s: %s", key, loaded.error)

    def ended(self, request: Request, now_s: float, error: Any = None) -> None:
        """Counts a request that ended, and records its spans. error: an exception, or (code,
        message)."""
        code = _code(error)
        finished = [one.finish for one in request.sequences if one.finish]
        ended = _ended(request, now_s)
        targets = None if code in _UNJUDGED else self._targets
        metrics.request_ended(self._model.key, _kind(request), ended, finished, targets)
        record.tenant_launch(
            self._model.key,
            request.tenant,
            _kind(request),
            1,
            ended.input_tokens + ended.output_tokens,
            request.device_s,
            (request.admitted_s or now_s) - request.arrived_s,
        )
        # An item is a part of its slice, which is traced where its job is sampled.
        trace = request.owner.trace if request.is_call else request.owner.span.packed
        if trace:
            tracing.record(trace, self._span(request, now_s, finished, code))

    def _record_pool(self, step: Step, scheduler: GenerationScheduler) -> None:
        capacity = scheduler.capacity
        blocks = Counter(dict.fromkeys(self._tenants, 0))
        for sequence in scheduler.running if capacity.blocks else ():
            blocks[sequence.request.tenant] += -(-sequence.tokens // capacity.block_tokens)
        self._tenants = {tenant for tenant, its in blocks.items() if its}
        free = step.free_blocks if scheduler.running and step.sequences else capacity.blocks
        calls = sum(one.request.is_call for one in scheduler.running)
        state = PoolState(
            {"call": calls, "item": len(scheduler.running) - calls},
            {"call": len(scheduler.calls), "item": len(scheduler.items)},
            capacity.blocks,
            free,
        )
        metrics.pool_changed(self._model.key, state, blocks)

    def _span(
        self, request: Request, now_s: float, finished: Sequence[str], code: str
    ) -> Generated:
        asked, usage = request.asked, request.usage
        return Generated(
            model=self._model.key,
            worker=self.worker,
            arrived_s=request.arrived_s,
            ended_s=now_s,
            prefill_s=request.admitted_s or None,
            first_token_s=request.first_s or None,
            input_tokens=usage.input,
            cached_tokens=usage.cached,
            output_tokens=usage.output,
            finish_reasons=finished,
            max_tokens=asked.sampling.max_tokens,
            temperature=asked.sampling.temperature,
            preemptions=request.preemptions,
            operation="text_completion" if asked.messages is None else "chat",
            error=code,
            seq=None if request.is_call else request.seq,
        )


def _kind(request: Request) -> Kind:
    return "call" if request.is_call else "item"


def _code(error: Any) -> str:
    """Returns the code of an error; "" for none."""
    if error is None:
        return ""
    if isinstance(error, tuple):
        return str(error[0])
    _, named = outcome(error)
    return named[0] if named else ""


def _ended(request: Request, now_s: float) -> EndedRequest:
    usage, first_s, admitted_s = request.usage, request.first_s, request.admitted_s
    longest = max((len(one.emitted) for one in request.sequences), default=0)
    return EndedRequest(
        queue_s=admitted_s - request.arrived_s if admitted_s else None,
        prefill_s=first_s - admitted_s if first_s else None,
        decode_s=now_s - first_s if first_s else None,
        ttft_s=first_s - request.arrived_s if first_s else None,
        itl_s=(now_s - first_s) / (longest - 1) if longest > 1 else None,
        input_tokens=usage.input,
        cached_tokens=usage.cached,
        output_tokens=usage.output,
        preemptions=request.preemptions,
    )
