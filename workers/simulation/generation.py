"""Generation on a virtual clock: the workers' scheduler decides, and steps take modelled times."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count, cycle
from math import inf, nan

from jobs.models.inputs.generation import GenerationRequest
from workers.engines.generator import Capacity, Prompt, Step
from workers.generation.requests import Request, Sequenced, sequences_of
from workers.generation.scheduler import Decision, GenerationScheduler

_ITL_S = 0.1  # without a target
_REQUEST = GenerationRequest(prompt="-")


@dataclass(frozen=True, slots=True)
class Arrival:
    """One request of a trace."""

    at_s: float
    input: int  #: tokens of its prompt
    output: int  #: tokens that it generates
    tenant: str = "call"


@dataclass(frozen=True, slots=True)
class StepCosts:
    """Time of a step, s: fixed + prefill * tokens of prompts + sequence * sequences + kv * tokens
    in the KV cache."""

    fixed: float
    prefill: float
    sequence: float
    kv: float

    def of(self, prefill: int, sequences: int, kv_tokens: int) -> float:
        """Returns the time of one step, s."""
        work = self.prefill * prefill + self.sequence * sequences + self.kv * kv_tokens
        return self.fixed + work


@dataclass
class GenerationResult:
    """Figures of a simulation; times of calls, s."""

    ttft_s: list[float] = field(default_factory=list)
    tenants: dict[str, list[float]] = field(default_factory=dict)  #: ttft_s by tenant
    itl_s: list[float] = field(default_factory=list)  #: mean of each call with two tokens or more
    lasted_s: float = 0.0
    steps: int = 0
    calls_tokens: int = 0  #: generated
    items_tokens: int = 0  #: generated, of the job
    preemptions: int = 0
    blocks_used: float = 0.0  #: mean share of the KV blocks


class _Replay:
    """State of one replay."""

    def __init__(
        self, capacity: Capacity, costs: StepCosts, itl_s: float, job: Sequence[Arrival]
    ) -> None:
        self.scheduler = GenerationScheduler(capacity, itl_s or _ITL_S, fills=itl_s > 0)
        self.result, self.now_s = GenerationResult(), 0.0
        self._capacity, self._costs = capacity, costs
        self._job: Iterator[Arrival] = cycle(job)
        self._fills = len(job) > 0
        self._outputs: dict[Request, int] = {}
        self._cached: dict[Sequenced, int] = {}  # KV tokens of preempted ones, the oldest first
        self._ids = count()

    @property
    def calls_left(self) -> bool:
        """True while calls wait or run."""
        running = any(one.request.is_call for one in self.scheduler.running)
        return running or bool(self.scheduler.calls)

    def put(self, arrival: Arrival, *, is_call: bool) -> None:
        """Queues a call or an item; what is longer than the context is cut."""
        most = self._capacity.context_tokens
        prompt = Prompt((), max(1, min(arrival.input, most - 1)), _REQUEST)
        deadline_s = arrival.at_s + 600 if is_call else inf
        tenant = arrival.tenant if is_call else "job"
        named = f"{next(self._ids)}", None, is_call, [prompt]
        request = Request(*named, arrival.at_s, deadline_s, tenant)
        request.sequences += sequences_of(request, most)
        self._outputs[request] = max(1, min(arrival.output, most - prompt.size))
        self.scheduler.put(request.sequences)

    def step(self) -> None:
        """Runs one step on the virtual clock."""
        scheduler = self.scheduler
        while self._fills and len(scheduler.items) < self._capacity.sequences:
            self.put(next(self._job), is_call=False)
        decision = scheduler.decide()
        self._cache(decision)
        decoding = [one for one in scheduler.running if not one.to_prefill]
        ahead = [one for one in scheduler.running if one.to_prefill]
        prefill = min(decision.prefill_tokens, sum(one.to_prefill for one in ahead))
        sequences, kv_tokens = len(scheduler.running), sum(one.tokens for one in decoding)
        took_s = self._costs.of(prefill, sequences, kv_tokens)
        self.now_s += took_s
        scheduler.stepped(Step((), took_s, prefill, sequences, kv_tokens))
        for one in (*decoding, *(one for one in ahead if not one.to_prefill)):
            self._emit(one)
        self._count(kv_tokens)

    def _cache(self, decision: Decision) -> None:
        """Keeps the blocks of preempted sequences while others don't need them, as engines do: one
        that comes back in time is not computed again."""
        for one in decision.preempted:
            self._cached[one] = max(0, one.tokens - one.to_prefill)
        for one in decision.admitted:
            one.to_prefill -= min(self._cached.pop(one, 0), one.to_prefill - 1)
        room = self._capacity.blocks * self._capacity.block_tokens
        room -= sum(one.tokens for one in self.scheduler.running)
        while self._cached and sum(self._cached.values()) > room:
            del self._cached[next(iter(self._cached))]

    def _emit(self, sequence: Sequenced) -> None:
        request = sequence.request
        request.first_s = request.first_s or self.now_s
        sequence.emitted.append(0)
        self.scheduler.emitted(sequence, 1)
        if request.is_call:
            self.result.calls_tokens += 1
        else:
            self.result.items_tokens += 1
        if len(sequence.emitted) < self._outputs[request]:
            return
        sequence.finish = "stop"
        self.scheduler.remove(sequence)
        del self._outputs[request]
        if request.is_call:
            ttft_s = request.first_s - request.arrived_s
            self.result.ttft_s.append(ttft_s)
            self.result.tenants.setdefault(request.tenant, []).append(ttft_s)
            if len(sequence.emitted) > 1:
                decode_s = self.now_s - request.first_s
                self.result.itl_s.append(decode_s / (len(sequence.emitted) - 1))

    def _count(self, kv_tokens: int) -> None:
        result = self.result
        result.steps += 1
        if self._capacity.blocks:
            share = kv_tokens / self._capacity.block_tokens / self._capacity.blocks
            result.blocks_used += (share - result.blocks_used) / result.steps


def replay(
    arrivals: Sequence[Arrival],
    capacity: Capacity,
    costs: StepCosts,
    itl_s: float,
    *,
    job: bool = False,
) -> GenerationResult:
    """Replays the calls of a trace, in order of their arrival, until all have ended. job: a job of
    items of the same sizes, which never ends, runs beside them. itl_s: time between tokens up to
    which items fill the steps; 0: they make the steps of calls hardly longer."""
    run = _Replay(capacity, costs, itl_s, arrivals if job else ())
    waiting = list(reversed(arrivals))
    while waiting or run.calls_left:
        while waiting and waiting[-1].at_s <= run.now_s:
            run.put(waiting.pop(), is_call=True)
        if not (job or run.calls_left):
            run.now_s = waiting[-1].at_s
            continue
        run.step()
    run.result.lasted_s, run.result.preemptions = run.now_s, run.scheduler.preemptions
    return run.result


def quantile(values: Sequence[float], share: float) -> float:
    """Returns a quantile of values; NaN without any."""
    if not values:
        return nan
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
