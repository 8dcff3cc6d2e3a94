"""Rules on load, capacity and latency."""

from math import ceil, floor, log10

from jobs.explain.diagnosis import Diagnosis
from jobs.explain.facts import REFUSALS, Facts, ModelFacts
from jobs.explain.formatting import count, duration, percent
from jobs.explain.rules.thresholds import (
    BUSY,
    CALLS,
    FULL_SHARE,
    IDLE,
    LAUNCHES,
    MUCH_WAIT,
    is_late,
)
from jobs.explain.workers import alone_s

LONG_DRAIN_S = 3600.0  # backlog that justifies more devices
LAZY_LAG_S = 0.1  # event loop lag below which the api has CPU to spare
WAITS_SHARE = 0.4  # of the mean latency of calls
SLOW_SHARE = 0.8  # of the target; the rest must hold the wait for the launch before
HELD_S = 10.0  # a launch of items that takes longer keeps its slices for long
REFUSED_SHARE = 0.01  # of calls
LEAST_REFUSED = 5


def device_saturated(model: ModelFacts, facts: Facts) -> Diagnosis | None:
    """Finds devices without spare capacity while calls are late or the backlog is long."""
    late, drains = is_late(model), model.drain_s >= LONG_DRAIN_S
    if model.busy < BUSY or model.launches.count < LAUNCHES or not (late or drains):
        return None
    idle = facts.lag_s < LAZY_LAG_S
    others = "the api's CPUs have time to spare" if idle else "the api is busy too"
    effect = (
        f"{percent(model.calls.missed)} of its calls miss the target of {duration(model.target_s)}"
        if late
        else f"the backlog takes {duration(model.drain_s)}"
    )
    launches = model.launches
    larger = (
        "a larger limits.max_batch lets one launch do more"
        if launches.rows >= FULL_SHARE * model.limits.most_rows
        else "a longer target_ms"
        + (" or a larger limits.max_tokens" if model.limits.max_tokens else "")
        + " lets one launch do more"
    )
    return Diagnosis(
        "device_saturated",
        "warning" if late else "info",
        model.about,
        f"the devices of {model.key} are {percent(model.busy)} busy, and {others} (its loop is "
        f"{duration(facts.lag_s)} late): {effect}{_used(model)}",
        f"more workers in its pool, or a faster device; a launch has {launches.rows:.1f} of up to "
        f"{model.limits.most_rows} entries: {larger}",
        {
            "busy": model.busy,
            "missed": model.calls.missed,
            "loop_lag_s": facts.lag_s,
            "launch_rows": launches.rows,
            "drain_s": model.drain_s,
            **_used_evidence(model),
        },
    )


def waiting_for_device(model: ModelFacts, facts: Facts) -> Diagnosis | None:
    """Finds calls that wait in their lane while the device runs other launches."""
    waited = model.calls.share("queue", "batch")
    if not is_late(model) or model.busy < IDLE or waited < WAITS_SHARE:
        return None
    waited_s = model.calls.stages_s.get("queue", 0.0) + model.calls.stages_s.get("batch", 0.0)
    if waited_s < MUCH_WAIT * model.target_s:
        return None
    return Diagnosis(
        "waiting_for_device",
        "warning",
        model.about,
        f"calls of {model.key} wait {duration(waited_s)} of their {duration(model.calls.mean_s)} "
        f"for a device: {count(model.slots, 'launch', 'launches')} may run at a time, each takes "
        f"{duration(model.launches.seconds)}, and devices are {percent(model.busy)} busy",
        "more workers in its pool; or shorter launches (a smaller limits.max_batch or max_tokens)",
        {"waited_s": waited_s, "total_s": model.calls.mean_s, "busy": model.busy},
    )


def waiting_to_batch(model: ModelFacts, facts: Facts) -> Diagnosis | None:
    """Finds calls that wait for a larger batch while devices have spare capacity."""
    waited = model.calls.share("queue")
    if not is_late(model) or model.busy >= IDLE or waited < WAITS_SHARE:
        return None
    reasons = model.launches.reasons
    held = reasons.get("pace", 0.0) + reasons.get("deadline", 0.0)
    share = held / max(1.0, model.launches.count)
    if model.launches.count < LAUNCHES or share < 0.5:
        return None
    waited_s = model.calls.stages_s.get("queue", 0.0)
    if waited_s < MUCH_WAIT * model.target_s:
        return None
    return Diagnosis(
        "waiting_to_batch",
        "warning",
        model.about,
        f"calls of {model.key} wait {duration(waited_s)} of their {duration(model.calls.mean_s)} "
        f"in lanes while its devices are {percent(model.busy)} busy: {percent(share)} of its "
        "launches left because their time was up, not because they were full "
        f"({model.launches.rows:.1f} entries of up to {model.limits.most_rows})",
        "a shorter target_ms makes launches leave sooner; if calls come in bursts, more replicas "
        "run them in parallel",
        {"waited_s": waited_s, "busy": model.busy, "paced": share, "rows": model.launches.rows},
    )


def slow_model(model: ModelFacts, facts: Facts) -> Diagnosis | None:
    """Finds a model whose engine alone takes about as long as the target."""
    engine_s = model.calls.stages_s.get("engine", 0.0)
    if model.calls.answered < CALLS or not model.target_s or _is_unreachable(model):
        return None
    if engine_s < SLOW_SHARE * model.target_s:
        return None
    return Diagnosis(
        "slow_model",
        "warning",
        model.about,
        f"a launch of {model.key} takes {duration(engine_s)} on the device, of a target of "
        f"{duration(model.target_s)}: no call that waits for one can be in time",
        "a faster device or a smaller model; a smaller limits.max_batch or max_tokens if launch "
        "time grows with them; or a target_ms that it can meet",
        {
            "engine_s": engine_s,
            "target_s": model.target_s,
            "launch_rows": model.launches.rows,
        },
    )


def unreachable_target(model: ModelFacts, facts: Facts) -> Diagnosis | None:
    """Finds a target that not even one input alone meets, whatever the load."""
    if not _is_unreachable(model):
        return None
    one_s = alone_s(model.hands)
    return Diagnosis(
        "unreachable_target",
        "warning",
        model.about,
        f"one input alone takes {duration(one_s)} on the device of {model.key}, and its target "
        f"is {duration(model.target_s)}: no call can be in time, however few there are; "
        f"{percent(model.calls.missed)} of {model.calls.judged:.0f} missed it",
        f"target_ms = {_round_up_ms(2 * one_s)} or more in its entry; or a faster device, a "
        "smaller model, or shorter inputs (limits.max_tokens). More workers don't help",
        {"alone_s": one_s, "target_s": model.target_s, "missed": model.calls.missed},
    )


def _is_unreachable(model: ModelFacts) -> bool:
    return model.calls.missed > 0 and alone_s(model.hands) >= model.target_s > 0


def _round_up_ms(seconds: float) -> int:
    """Rounds up to one significant digit."""
    digit = 10.0 ** floor(log10(max(1.0, seconds * 1000)))
    return round(ceil(seconds * 1000 / digit) * digit)


def one_worker(model: ModelFacts, facts: Facts) -> Diagnosis | None:
    """Finds a slow model of which one worker has all the work that is left."""
    busy = [hand for hand in model.hands if hand.slices]
    if len(busy) != 1 or model.claimable_s or busy[0].launched_s < HELD_S:
        return None
    hand, idle = busy[0], len(model.hands) - 1
    if hand.items < 2:  # nothing to share
        return None
    others = (
        f"{count(idle, 'other worker')} that {'is' if idle == 1 else 'are'} ready for it "
        f"{'has' if idle == 1 else 'have'} nothing to do"
        if idle
        else "no other worker is ready for it"
    )
    return Diagnosis(
        "one_worker",
        "warning" if idle else "info",
        model.about,
        f"worker {hand.worker} has all that is left of {model.key}: "
        f"{count(model.queued_items, 'item')} in {count(hand.slices, 'slice')}, {hand.items} of "
        f"them in launches that began {duration(hand.launched_s)} ago; {others}",
        f"a smaller limits.max_batch (now {model.limits.most_rows}) or limits.slice_items leaves "
        "items to others, and shows progress sooner"
        + ("" if idle else "; then more workers in its pool take part"),
        {
            "worker": hand.worker,
            "items": float(hand.items),
            "queued_items": model.queued_items,
            "launched_s": hand.launched_s,
            "idle_workers": float(idle),
        },
    )


def overload(model: ModelFacts, facts: Facts) -> Diagnosis | None:
    """Finds calls rejected because they would be late, or because too many wait."""
    refused = {code: model.calls.outcomes.get(code, 0.0) for code in REFUSALS}
    total = sum(refused.values())
    if total < LEAST_REFUSED or total < REFUSED_SHARE * model.calls.count:
        return None
    share = total / model.calls.count
    most = max(refused, key=lambda code: refused[code])
    return Diagnosis(
        "overload",
        "warning",
        model.about,
        f"{percent(share)} of the calls of {model.key} are refused ({total:.0f} of "
        f"{model.calls.count:.0f}, most as {most}): more arrive than it can answer in time"
        f"{_used(model)}",
        "clients should respect Retry-After; more workers take more, degrade.fallback or truncate "
        "in its entry answer some differently, and limits of tenants decide who is rejected",
        {
            "refused": total,
            "calls": model.calls.count,
            "share": share,
            **_used_evidence(model),
        },
    )


def _used(model: ModelFacts) -> str:
    """Says how much of the pool calls use: devices are busy with jobs and small launches too."""
    if model.capacity_used is None:
        return ""
    return f"; calls bring {percent(model.capacity_used)} of the work that its pool can do"


def _used_evidence(model: ModelFacts) -> dict[str, float]:
    return {} if model.capacity_used is None else {"capacity_used": model.capacity_used}


RULES = (
    device_saturated,
    waiting_for_device,
    waiting_to_batch,
    slow_model,
    unreachable_target,
    one_worker,
    overload,
)
