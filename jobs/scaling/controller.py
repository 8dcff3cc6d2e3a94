"""Decision on the number of replicas of a pool, from its load, its policy and its past.

    up      at once, to what is needed most
    down    one at a time, once fewer have done for cooldown_s, min_stay_s after the latest addition
    overdue replicas don't get ready: said once, and no more of them are asked for because of it
    stay    else, and always where the load isn't known

What is asked for is a number, not a difference: replicas that boot count by themselves.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from jobs.scaling import needs
from jobs.scaling.history import History
from jobs.scaling.needs import Need
from jobs.scaling.policy import Policy
from jobs.scaling.rules import Rule
from jobs.scaling.signals import Signals

Act = Literal["up", "down", "stay", "overdue"]

_EASE = 1.15  # of the room that must be left for one replica fewer
_SEEN_S = 15.0  # after which no figure is of the time before: counters of 10 s, told every 5 s
_KEPT_USED = 0.25  # use from which on none is taken away while calls are refused or late
_OVERDUE = 3.0  # in boots
_LEAST_OVERDUE_S = 60.0
_STRAINED_S = 3600.0  # for which apis aren't asked to carry what they lagged under


@dataclass(frozen=True, slots=True)
class Decision:
    """Number of replicas, and why."""

    act: Act
    desired: int
    reason: str
    history: History  #: for the next decision


def decide(signals: Signals, policy: Policy, history: History) -> Decision:
    """Returns the decision that is due now. May be asked for at any time, and as often as one
    likes; the policy's times are kept by the signals' clock."""
    before = signals.ready + signals.booting if history.desired is None else history.desired
    known = history.desired is not None or not signals.missing
    if known and (policy.clamp(before) != before or history.desired is None):
        return _begin(before, signals, policy, history)
    if signals.missing:
        reason = f"nothing is decided without {', '.join(signals.missing)}"
        return Decision("stay", before, reason, history.without_timers())
    history = _observe(signals, policy, history)
    fired = [rule for rule in policy.parsed_rules if _fires(rule, signals, history)]
    wanted = max(_wanted(signals, policy, history, fired), key=lambda need: need.replicas)
    if policy.clamp(wanted.replicas) > before:
        return _up(wanted, signals, policy, history)
    if _is_overdue(signals, policy, history) and not history.overdue:
        return _overdue(signals, history)
    if reason := _lower(signals, policy, history, fired):
        return _change(before - 1, reason, signals, history)
    return Decision("stay", before, wanted.reason, history)


def _begin(before: int, signals: Signals, policy: Policy, history: History) -> Decision:
    """Begins with the replicas that there are, within the bounds, which people may have changed."""
    bounded = policy.clamp(before)
    if bounded == before:
        reason = f"there are {before}, with those that boot"
        new = replace(history, desired=before, changed_s=signals.at_s, grown_s=signals.at_s)
        return Decision("stay", before, reason, new)
    reason = f"min_replicas is {policy.min_replicas}, max_replicas {policy.max_replicas}"
    return _change(bounded, reason, signals, replace(history, desired=before))


def _observe(signals: Signals, policy: Policy, history: History) -> History:
    """Returns the history with what holds now. Of rules nothing holds while replicas boot, which
    are to have their time to work it off."""
    at_s, short = signals.at_s, signals.ready < _desired(history)
    rules = () if short and not history.overdue else policy.parsed_rules
    held = [rule.text for rule in rules if rule.holds(signals)]
    low = _load_does_with(_desired(history) - 1, signals, policy, history)
    return replace(
        history,
        holding={text: history.holding.get(text, at_s) for text in held},
        low_since_s=_since(history.low_since_s, at_s) if low else None,
        short_since_s=_since(history.short_since_s, at_s) if short else None,
        settled_since_s=None if short else _since(history.settled_since_s, at_s),
        overdue=history.overdue and short,
    )


def _since(before_s: float | None, at_s: float) -> float:
    return at_s if before_s is None else before_s


def _wanted(
    signals: Signals, policy: Policy, history: History, fired: list[Rule]
) -> Iterator[Need]:
    desired = _desired(history)
    yield from needs.floors(policy, history.arrivals, signals.at_s)
    if policy.correct:
        yield from needs.by_load(signals, policy)
    if signals.ready < desired:  # what was asked for may do
        return
    settled_s = signals.at_s - _since(history.settled_since_s, signals.at_s)
    if policy.correct and settled_s >= _SEEN_S and needs.is_pressed(signals):
        yield needs.under_pressure(signals, desired)
    for rule in fired:
        if rule.add > 0:
            yield Need(desired + rule.add, f"rule {rule.text!r}")


def _lower(signals: Signals, policy: Policy, history: History, fired: list[Rule]) -> str:
    """Returns why one replica fewer is due; "": it isn't."""
    at_s, desired = signals.at_s, _desired(history)
    fewer = desired - 1
    floor = max(need.replicas for need in needs.floors(policy, history.arrivals, at_s))
    waiting = signals.ready < desired and not history.overdue
    grows = any(rule.add > 0 and rule.holds(signals) for rule in policy.parsed_rules)
    if fewer < floor or waiting or grows or needs.is_pressed(signals, _KEPT_USED):
        return ""
    if at_s - history.grown_s < policy.min_stay_s or at_s - history.changed_s < policy.cooldown_s:
        return ""
    if policy.correct:
        if history.low_since_s is None:
            return ""
        if at_s - history.low_since_s >= policy.cooldown_s:
            return f"{fewer} have done for {at_s - history.low_since_s:.0f} s"
    for rule in fired:
        if rule.add < 0:
            return f"rule {rule.text!r}"
    return ""


def _load_does_with(replicas: int, signals: Signals, policy: Policy, history: History) -> bool:
    each_s, since_s = history.strained_each_s, signals.at_s - history.grown_s
    if each_s and since_s < _STRAINED_S and (signals.requests_s or 0.0) * _EASE > replicas * each_s:
        return False
    return all(need.replicas <= replicas for need in needs.by_load(signals, policy, _EASE))


def _fires(rule: Rule, signals: Signals, history: History) -> bool:
    since_s = history.holding.get(rule.text)
    return since_s is not None and signals.at_s - since_s >= rule.for_s


def _up(wanted: Need, signals: Signals, policy: Policy, history: History) -> Decision:
    reason, replicas = wanted.reason, policy.clamp(wanted.replicas)
    if replicas < wanted.replicas:
        reason += f"; {wanted.replicas} would be needed, max_replicas is {policy.max_replicas}"
    if signals.lags(policy.lag_ms):
        history = replace(history, strained_each_s=signals.requests_each_s)
    return _change(replicas, reason, signals, history)


def _change(replicas: int, reason: str, signals: Signals, history: History) -> Decision:
    """Changes the number; what held before held for another number."""
    grows, at_s = replicas > _desired(history), signals.at_s
    new = replace(
        history.without_timers(),
        desired=replicas,
        changed_s=at_s,
        grown_s=at_s if grows else history.grown_s,
        short_since_s=None if grows else history.short_since_s,
        overdue=history.overdue and not grows,
    )
    return Decision("up" if grows else "down", replicas, reason, new)


def _is_overdue(signals: Signals, policy: Policy, history: History) -> bool:
    after_s = max(_OVERDUE * policy.boot_s, _LEAST_OVERDUE_S)
    return history.short_since_s is not None and signals.at_s - history.short_since_s >= after_s


def _overdue(signals: Signals, history: History) -> Decision:
    desired, since_s = _desired(history), _since(history.short_since_s, signals.at_s)
    reason = (
        f"only {signals.ready} of {desired} replicas are ready for {signals.at_s - since_s:.0f} s, "
        f"and {signals.booting} load: look at what starts them, and at `millrace workers`"
    )
    return Decision("overdue", desired, reason, replace(history, overdue=True))


def _desired(history: History) -> int:
    return history.desired or 0
