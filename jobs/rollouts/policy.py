"""Policy of a rollout: its steps, how long it stays at each, and how much worse a canary may be."""

from dataclasses import dataclass

from pydantic import ConfigDict

from jobs.problems import PolicyFormat

_MOST_STEPS = 20
_FULL = 100.0


@dataclass(frozen=True, slots=True)
class Policy:
    """Steps and limits, as `rollouts.policy` stores them."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    #: percent of the calls at each step, growing up to 100
    steps: tuple[float, ...] = (1.0, 5.0, 10.0, 25.0, 50.0, 100.0)
    min_launches: int = 200  #: of the canary at each step; callers, where they are sticky
    min_stay_s: float = 300.0  #: at each step
    idle_s: float = 600.0  #: without a launch of the canary, after which the rollout is held
    #: probability that a version like the one before is ever rolled back; as much again, that it
    #: is held for each of two costs
    false_alarm: float = 0.01
    #: growth of cost that is let through without a question; the interval must be beyond it
    cost_hold: float = 0.0
    cost_limit: float = 0.5  #: growth of cost that rolls back
    #: time for which workers keep the version before in memory, once the canary is promoted
    keep_warm_s: float = 3600.0
    accept_cost: bool = False  #: True once a person has accepted the growth of cost

    def is_alone(self, step: int) -> bool:
        """Returns True if the canary gets all calls at a step: there is no control then."""
        return self.steps[step] >= _FULL


def _problems(policy: Policy) -> list[str]:
    steps, found = policy.steps, list[str]()
    if not 1 <= len(steps) <= _MOST_STEPS or any(not 0 < step <= _FULL for step in steps):
        found.append(f"steps: 1 to {_MOST_STEPS} numbers above 0, up to 100 percent")
    elif list(steps) != sorted(set(steps)) or steps[-1] != _FULL:
        found.append("steps: must grow, and end with 100")
    elif any(_FULL / 2 < step < _FULL for step in steps):
        found.append("steps: none between 50 and 100 percent, which leave no control of their size")
    if not 0 < policy.false_alarm <= 0.2:
        found.append("false_alarm: a probability above 0, up to 0.2")
    if not 0 <= policy.cost_hold <= policy.cost_limit:
        found.append("cost_hold: 0 up to cost_limit")
    for name in ("min_launches", "min_stay_s", "idle_s", "keep_warm_s"):
        if getattr(policy, name) < 0:
            found.append(f"{name}: must not be negative")
    return found


_FORMAT = PolicyFormat(Policy, _problems)
parse, read, dump = _FORMAT.parse, _FORMAT.read, _FORMAT.dump
