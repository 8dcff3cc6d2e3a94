"""Rules of how much there is to do, and of what does it."""

from jobs.explain.diagnosis import Diagnosis
from jobs.explain.facts import REFUSALS, Facts, ModelFacts
from jobs.explain.rules.enough import BUSY, CALLS, IDLE, LAUNCHES, MUCH_WAIT, is_late
from jobs.explain.words import count, percent, span

LONG_DRAIN_S = 3600.0
"""Work of more than an hour, on devices that are busy: more of them would be felt."""
LAZY_LAG_S = 0.1
"""An event loop that is no later than this has CPU to spare."""
WAITS_SHARE = 0.4
"""Of a call's time: what takes more of it than this is where to look."""
SLOW_SHARE = 0.8
"""Of the target: what is left beside a launch must hold a wait for the launch before it."""
FULL_SHARE = 0.8
"""Of `max_batch`: launches that have fewer entries in the mean wouldn't grow with it."""
REFUSED_SHARE = 0.01
LEAST_REFUSED = 5


def device_saturated(model: ModelFacts, facts: Facts) -> Diagnosis | None:
    """Devices have no time left, and something suffers by it."""
    late, drains = is_late(model), model.drain_s >= LONG_DRAIN_S
    if model.busy < BUSY or model.launches.count < LAUNCHES or not (late or drains):
        return None
    idle = facts.lag_s < LAZY_LAG_S
    others = "the api's CPUs have time to spare" if idle else "the api is busy too"
    suffers = (
        f"{percent(model.calls.missed)} of its calls miss the target of {span(model.target_s)}"
        if late
        else f"the work that waits takes {span(model.drain_s)}"
    )
    launches = model.launches
    most = model.limits.max_batch
    larger = (
        "a larger limits.max_batch lets one launch do more"
        if launches.rows >= FULL_SHARE * most
        else "a longer target_ms"
        + (" or a larger limits.max_tokens" if model.limits.max_tokens else "")
        + " lets one launch do more"
    )
    return Diagnosis(
        "device_saturated",
        "warning" if late else "info",
        model.about,
        f"the devices of {model.key} are {percent(model.busy)} busy, and {others} (its loop is "
        f"{span(facts.lag_s)} late): {suffers}",
        f"more workers of its pool, or a faster device; a launch has {launches.rows:.1f} of up to "
        f"{most} entries: {larger}",
        {
            "busy": model.busy,
            "missed": model.calls.missed,
            "loop_lag_s": facts.lag_s,
            "launch_rows": launches.rows,
            "drain_s": model.drain_s,
        },
    )


def waiting_for_device(model: ModelFacts, facts: Facts) -> Diagnosis | None:
    """Calls wait in their lane because launches before them take the device."""
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
        f"calls of {model.key} wait {span(waited_s)} of their {span(model.calls.mean_s)} for a "
        f"device: {count(model.slots, 'launch', 'launches')} may run at a time, each takes "
        f"{span(model.launches.seconds)}, and devices are {percent(model.busy)} busy",
        "more workers of its pool; or shorter launches (a smaller limits.max_batch or max_tokens), "
        "which a call waits for less long",
        {"waited_s": waited_s, "total_s": model.calls.mean_s, "busy": model.busy},
    )


def waiting_to_batch(model: ModelFacts, facts: Facts) -> Diagnosis | None:
    """Calls wait for company while devices have time for them."""
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
        f"calls of {model.key} wait {span(waited_s)} of their {span(model.calls.mean_s)} in lanes "
        f"while its devices are {percent(model.busy)} busy: {percent(share)} of its launches left "
        f"because their time was up, not because they were full ({model.launches.rows:.1f} entries "
        f"of up to {model.limits.max_batch})",
        "a shorter target_ms lets launches leave sooner; where calls come in bursts, more replicas "
        "take them side by side",
        {"waited_s": waited_s, "busy": model.busy, "paced": share, "rows": model.launches.rows},
    )


def slow_model(model: ModelFacts, facts: Facts) -> Diagnosis | None:
    """The engine alone takes about as long as the target allows."""
    engine_s = model.calls.stages_s.get("engine", 0.0)
    if model.calls.answered < CALLS or not model.target_s:
        return None
    if engine_s < SLOW_SHARE * model.target_s:
        return None
    return Diagnosis(
        "slow_model",
        "warning",
        model.about,
        f"a launch of {model.key} takes {span(engine_s)} on the device, of a target of "
        f"{span(model.target_s)}: nothing that waits for one can be in time",
        "a faster device or a smaller model; a smaller limits.max_batch or max_tokens, if its time "
        "grows with them; or a target_ms that it can make",
        {
            "engine_s": engine_s,
            "target_s": model.target_s,
            "launch_rows": model.launches.rows,
        },
    )


def overload(model: ModelFacts, facts: Facts) -> Diagnosis | None:
    """Calls are refused since they would come too late, or too many wait."""
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
        f"{model.calls.count:.0f}, most as {most}): more come than it answers in time",
        "clients should keep to Retry-After; more workers take more, degrade.fallback or truncate "
        "in its entry answers some otherwise, and limits of tenants say who gives way",
        {"refused": total, "calls": model.calls.count, "share": share},
    )


RULES = (device_saturated, waiting_for_device, waiting_to_batch, slow_model, overload)
