"""Rollout of a version that differs in a known way, played into a trace: a canary and the version
before it on replicas of their own, judged by the code that a keeper judges launches by."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from random import Random
from typing import Any

from jobs.calls.memory import MemoryLanes
from jobs.calls.messages import Reply
from jobs.models.model import Model
from jobs.models.routing.bucket import BUCKETS
from jobs.models.routing.rollout import ActiveRollout
from jobs.rollouts.cohorts import Cohort, parse
from jobs.rollouts.controller import RolloutState, State, decide, figures_of
from jobs.rollouts.guardrails import Observations
from jobs.rollouts.policy import Policy
from jobs.rollouts.records import LaunchRecord
from ops.simulation.traces import Arrival
from workers.device.monitoring.rollout_records import records_of
from workers.keeper.rollouts.residuals import Residuals
from workers.scheduler.entries import Entry, Launch
from workers.simulation.costs import LaunchTimes, Overheads
from workers.simulation.event_loop import BEGINS_S, EventLoop
from workers.simulation.gateway import Gateway
from workers.simulation.replica import Replica, Stage, WakeupList
from workers.simulation.run import MOST_WAITING, TIMEOUT_MS

_LOOK_S = 0.5  # between two looks of a keeper
_ID = "simulated"
_OUTPUT, _ERROR = b"1", ("engine_error", "an injected error")


@dataclass(frozen=True, slots=True)
class Regression:
    """How the canary differs from the version before; by default not at all."""

    errors: float = 0.0  #: share of its calls that fail
    latency: float = 1.0  #: factor of the device time of its launches
    cost: float = 1.0  #: factor of its price, at the same device time

    @classmethod
    def parse(cls, text: str) -> "Regression":
        """Reads "errors=0.05,latency=1.2", or "none". Raises ValueError."""
        if text.strip() == "none":
            return cls()
        values = dict[str, float]()
        for part in text.split(","):
            name, _, value = part.strip().partition("=")
            try:
                values[name] = float(value)
            except ValueError:
                raise ValueError(
                    f"{part.strip()!r} must be NAME=NUMBER, such as errors=0.05"
                ) from None
        if unknown := values.keys() - {one.name for one in fields(cls)}:
            raise ValueError(f"{', '.join(sorted(unknown))}: it takes errors, latency and cost")
        found = cls(**values)
        if not (0 <= found.errors <= 1 and 0 < found.latency < 1000 and 0 < found.cost < 1000):
            raise ValueError("errors is a share from 0 to 1; latency and cost are factors above 0")
        return found


@dataclass(frozen=True, slots=True)
class Event:
    """Act of the rollout."""

    at_s: float  #: since the beginning
    act: str  #: start, advance, hold, resume, promote, roll_back
    percent: float  #: share of the canary from then on
    reason: str
    figures: Mapping[str, Any]  #: behind it


@dataclass(frozen=True, slots=True)
class Played:
    """Rollout to the end of the trace."""

    events: Sequence[Event]
    state: State
    reason: str  #: of the state, or what the next step waits for
    calls: Mapping[str, int]  #: by lane: canary, control, stable
    failed: int  #: calls of the canary that were made to fail
    lasted_s: float

    def as_json(self) -> dict[str, Any]:
        """Figures for programs."""
        return asdict(self)


def play(
    model: Model,
    replicas: int,
    arrivals: Sequence[Arrival],
    times: LaunchTimes,
    regression: Regression,
    policy: Policy,
    *,
    overheads: Overheads | None = None,
    seed: int = 0,
) -> Played:
    """Replays arrivals until every call has ended, while a rollout goes on from the first one.

    The same seed gives the same result.
    """
    loop, costs = EventLoop(), overheads or Overheads()
    slower = times.faster(1 / regression.latency)
    stable = _Version.started(loop, model, replicas, times, costs, Regression(), f"{seed} stable")
    canary = _Version.started(loop, model, replicas, slower, costs, regression, f"{seed} canary")
    rollout = _Rollout(loop, stable, canary, policy, Random(f"{seed} cohorts"))
    rollout.start(arrivals)
    loop.run(lambda: len(stable.ended) + len(canary.ended) == len(arrivals))
    return rollout.played()


class _Version(Gateway):
    """Gateway and replicas of one version, whose launches of a lane are recorded as a worker
    records them."""

    def __init__(self, stage: Stage, regression: Regression, random: Random) -> None:
        shared = stage.model, stage.loop, stage.lanes
        bounds = stage.overheads, TIMEOUT_MS, MOST_WAITING
        super().__init__(*shared, (), *bounds, stage.wakeups.notify)
        self.records = list[LaunchRecord]()  #: that the keeper hasn't read
        self.failed = 0  #: calls
        self._stage, self._regression, self._random = stage, regression, random

    @classmethod
    def started(
        cls, loop: EventLoop, model: Model, replicas: int, times: LaunchTimes, costs: Overheads,
        regression: Regression, seed: str,
    ) -> "_Version":  # fmt: skip
        """Returns a version whose replicas are started."""
        lanes = MemoryLanes(lambda: loop.now_s * 1000)
        random = Random(seed)
        stage = Stage(model, loop, lanes, WakeupList(lanes), costs, random)
        version = cls(stage, regression, Random(f"{seed} errors"))
        for number in range(replicas):
            Replica(number, times, stage, version, None).start()
        return version

    def answer(self, launch: Launch) -> None:
        """Answers the calls of a launch, and records it."""
        super().answer(launch)
        calls = {entry.owner.id: entry.owner for entry in launch.calls}
        cohorts = {id: found for id, call in calls.items() if (found := parse(call.cohort))}
        if cohorts:
            replies = list(map(self._reply, launch.calls, launch.device_us))
            self.records.append(self._record(launch, replies, cohorts))

    def _record(
        self, launch: Launch, replies: Sequence[Reply], cohorts: Mapping[str, Cohort]
    ) -> LaunchRecord:
        at_s = self._stage.loop.now_s
        if any(cohort.lane == "stable" for cohort in cohorts.values()):
            failed = any(reply.error for reply in replies)
            return LaunchRecord(at_s, "stable", 0, int(failed), launches=1)
        [record] = records_of(self._stage.model, launch, replies, cohorts)
        return replace(record, at_s=at_s, price=record.price * self._regression.cost)

    def _reply(self, entry: Entry, device_us: int) -> Reply:
        fails = self._random.random() < self._regression.errors
        self.failed += fails
        output, error = (None, _ERROR) if fails else (_OUTPUT, None)
        return Reply(entry.owner.id, output, error, entry.size, {}, device_us=device_us)


class _Rollout:
    """Routes calls by the present step, and moves on as a keeper would."""

    def __init__(
        self, loop: EventLoop, stable: _Version, canary: _Version, policy: Policy, random: Random
    ) -> None:
        self._loop, self._policy, self._random = loop, policy, random
        self._stable, self._canary = stable, canary
        self._state = RolloutState("running", 0, loop.now_s)
        self._waits_for = ""
        self._seen, self._residuals = Observations(), Residuals()
        self._events = list[Event]()
        self._calls = {"canary": 0, "control": 0, "stable": 0}

    def start(self, arrivals: Sequence[Arrival]) -> None:
        """Schedules the first arrival, and the keeper."""
        self._arrivals = arrivals
        self._begin_step()
        self._note("start", "the rollout starts")
        self._expect(0)
        self._loop.after(_LOOK_S, self._look)

    def played(self) -> Played:
        """Returns what has happened."""
        state, waits_for = self._state, self._waits_for
        reason = waits_for if state.state == "running" else state.reason
        lasted_s = self._loop.now_s - BEGINS_S
        calls, failed = self._calls, self._canary.failed
        return Played(self._events, state.state, reason, calls, failed, lasted_s)

    # -- calls

    def _expect(self, number: int) -> None:
        if number < len(self._arrivals):
            self._loop.at(BEGINS_S + self._arrivals[number][0], self._arrive, number)

    def _arrive(self, number: int) -> None:
        step = ActiveRollout(_ID, "", "", "", self._percent)
        cohort = step.cohort_at(self._random.randrange(BUCKETS))
        self._calls[cohort] += 1
        version = self._canary if cohort == "canary" else self._stable
        version.take(number, self._arrivals[number][1], cohort=f"{cohort}#{_ID}")
        self._expect(number + 1)

    @property
    def _percent(self) -> float:
        """Share of the canary."""
        ends = {"rolled_back": 0.0, "promoted": 100.0}
        return ends.get(self._state.state, self._policy.steps[self._state.step])

    # -- the keeper

    def _look(self) -> None:
        records = sorted(self._stable.records + self._canary.records, key=lambda one: one.at_s)
        self._stable.records, self._canary.records = [], []
        self._seen.add(map(self._residuals.with_residual, records))
        decision = decide(self._state, self._seen, self._policy, self._loop.now_s)
        self._waits_for = decision.reason
        if decision.act != "stay":
            self._state = self._state.next(decision.act, decision.reason, self._loop.now_s)
            if decision.act == "advance":
                self._begin_step()
            self._note(decision.act, decision.reason)
        if self._state.state in ("running", "held"):
            self._loop.after(_LOOK_S, self._look)

    def _begin_step(self) -> None:
        now_s = self._loop.now_s
        self._seen.begin_step(now_s, alone=self._policy.is_alone(self._state.step))
        self._seen.reach(now_s)

    def _note(self, act: str, reason: str) -> None:
        at_s, figures = self._loop.now_s - BEGINS_S, figures_of(self._seen, self._policy)
        self._events.append(Event(at_s, act, self._percent, reason, figures))
