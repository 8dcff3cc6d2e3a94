"""Policy of a pool: bounds, headroom, times, schedules and rules of its autoscaler."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal, get_args

from pydantic import ConfigDict

from jobs.problems import PolicyFormat
from jobs.scaling import rules
from jobs.scaling.rules import Rule
from jobs.scaling.schedules import Schedule

Actuation = Literal["plan", "command", "local", "kubernetes"]
ACTUATIONS: tuple[Actuation, ...] = get_args(Actuation)
_MOST_REPLICAS = 10_000
_MOST_ROWS = 50  # schedules, or rules
_MOST_LAG_MS = 60_000.0
_LAG_RULE = "lag above {:g} ms for 10 s: +1"


@dataclass(frozen=True, slots=True)
class Policy:
    """Terms of one pool, as `pool_policies.policy` stores them."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    min_replicas: int = 1
    max_replicas: int = 1
    #: who starts and ends workers: plan (nobody: decisions are written down), command, local,
    #: kubernetes
    actuator: Actuation = "plan"
    #: False: schedules, forecast and rules decide alone, without the correction by leading signals
    correct: bool = True
    target_used: float = 0.75  #: share of the capacity that calls may use, 0 to 1
    drain_s: float = 120.0  #: time in which waiting items are to be done, once replicas are ready
    boot_s: float = 60.0  #: time until a new replica is ready
    cooldown_s: float = 60.0  #: for which fewer must do before one goes, and between two that go
    min_stay_s: float = 300.0  #: after the latest addition, before any goes
    forecast: float = 0.8  #: quantile of earlier days that the floor is made of; 0: no forecast
    schedules: tuple[Schedule, ...] = ()
    rules: tuple[str, ...] = field(default=())
    #: of the pool of apis: requests a second that one carries, and the lag of its event loop, ms,
    #: beyond which it carries too many, whatever their number
    requests_s: float = 1000.0
    lag_ms: float = 100.0
    spot_pool: str = ""  #: pool of spot workers that serve the same models; "": none
    spot_share: float = 0.0  #: share of the replicas that may be in it, 0 to 1
    on_demand_floor: int = 0  #: replicas that aren't, whatever the share

    @property
    def parsed_rules(self) -> tuple[Rule, ...]:
        """Rules, parsed, and the one about the lag of apis."""
        lag = (_LAG_RULE.format(self.lag_ms),) if self.correct else ()
        return _parsed((*self.rules, *lag))

    def clamp(self, replicas: int) -> int:
        """Returns the number within the bounds that is nearest."""
        return min(max(replicas, self.min_replicas), self.max_replicas)


@lru_cache(maxsize=64)
def _parsed(texts: tuple[str, ...]) -> tuple[Rule, ...]:
    return tuple(map(rules.parse, texts))


def _spot_problems(policy: Policy) -> Iterator[str]:
    if not 0 <= policy.spot_share <= 1:
        yield "spot_share: 0 up to 1"
    if not 0 <= policy.on_demand_floor <= policy.max_replicas:
        yield "on_demand_floor: 0 up to max_replicas"
    if (policy.spot_share > 0) != bool(policy.spot_pool):
        yield "spot_share, spot_pool: both or none: the share of the replicas, and where they are"
    if policy.spot_pool and policy.actuator == "local":
        yield "spot_pool: not with the actuator local, whose workers are all on one machine"


def _problems(policy: Policy) -> list[str]:
    found = list[str]()
    if not 0 <= policy.min_replicas <= policy.max_replicas <= _MOST_REPLICAS:
        found.append(f"min_replicas: 0 up to max_replicas, which is up to {_MOST_REPLICAS:,}")
    if not 0 < policy.target_used <= 1:
        found.append("target_used: above 0, up to 1")
    if not 0 <= policy.forecast <= 1:
        found.append("forecast: 0 up to 1")
    found += _spot_problems(policy)
    for name in ("drain_s", "boot_s", "cooldown_s", "min_stay_s"):
        if not 0 <= getattr(policy, name) < float("inf"):
            found.append(f"{name}: 0 or more seconds")
    if policy.drain_s == 0:
        found.append("drain_s: above 0")
    if not 0 < policy.requests_s < float("inf"):
        found.append("requests_s: above 0")
    if not 1 <= policy.lag_ms <= _MOST_LAG_MS:
        found.append(f"lag_ms: 1 up to {_MOST_LAG_MS:,.0f}")
    for name in ("schedules", "rules"):
        if len(getattr(policy, name)) > _MOST_ROWS:
            found.append(f"{name}: at most {_MOST_ROWS}")
    for n, schedule in enumerate(policy.schedules):
        found += [f"schedules.{n}: {problem}" for problem in schedule.problems()]
        if schedule.replicas > policy.max_replicas:
            found.append(f"schedules.{n}: replicas are more than max_replicas")
    for n, text in enumerate(policy.rules):
        try:
            rules.parse(text)
        except ValueError as error:
            found.append(f"rules.{n}: {error}")
    return found


_FORMAT = PolicyFormat(Policy, _problems)
parse, read, dump = _FORMAT.parse, _FORMAT.read, _FORMAT.dump
