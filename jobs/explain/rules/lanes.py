"""Rules of lanes: how entries that may share a launch find each other, and what that costs."""

from jobs.explain.diagnosis import Diagnosis
from jobs.explain.facts import Facts, ModelFacts
from jobs.explain.rules.enough import CALLS, LAUNCHES, MUCH_WAIT, is_late
from jobs.explain.words import count, percent, span

MANY_LANES = 2.0
"""Times as many lanes as launches may run at a time: with fewer, each finds a replica."""
LEAST_LANES = 4
SMALL_ROWS = 2.0
"""Entries a launch: with fewer there is next to no batching."""
HOT_SHARE = 0.6
"""Of all waiting in one lane of at least three."""
HOT_LANES = 3
WASTE = 0.5
"""Of what is computed: two lengths of one bucket are half a bucket apart at most."""
WASTING_BUSY = 0.5
"""A device that is idle for longer may as well compute padding."""
FAR, SHORT = 1.5, 0.6
"""Actual by predicted time of launches, in the median: beyond it calls are let in that will be
late, below it calls are refused that would not."""


def fragmented_lanes(model: ModelFacts, facts: Facts) -> Diagnosis | None:
    """Entries are spread over so many lanes that each is launched by itself."""
    lanes, launches = len(model.lanes), model.launches
    if launches.count < LAUNCHES or not is_late(model):
        return None
    if lanes < max(LEAST_LANES, MANY_LANES * model.slots) or launches.rows >= SMALL_ROWS:
        return None
    if model.limits.max_batch < 2:
        return None  # one lane would fill no launch either
    return Diagnosis(
        "fragmented_lanes",
        "warning",
        model.about,
        f"devices are {percent(model.busy)} busy and p99 rises to {span(model.calls.p99_s or 0.0)} "
        f"(target {span(model.target_s)}): {count(lanes, 'lane')} of {model.key} share "
        f"{count(model.slots, 'launch', 'launches')} at a time, mean launch {launches.rows:.1f} of "
        f"{model.limits.max_batch}",
        "merge buckets (bucketing = false, where lengths differ little) or let callers agree on "
        "parameters: each combination is a lane of its own; or add replicas, about one for each "
        "two lanes that are busy at once",
        {
            "busy": model.busy,
            "lanes": float(lanes),
            "slots": model.slots,
            "rows": launches.rows,
            "p99_s": model.calls.p99_s or 0.0,
        },
    )


def hot_lane(model: ModelFacts, facts: Facts) -> Diagnosis | None:
    """One lane has most of the waiting."""
    waits_s = sum(lane.wait_s for lane in model.lanes)
    if len(model.lanes) < HOT_LANES or not is_late(model):
        return None
    hot = model.lanes[0]
    share = hot.wait_s / max(1e-9, waits_s)
    waits_long = hot.mean_wait_s >= MUCH_WAIT * model.target_s
    if share < HOT_SHARE or hot.entries < CALLS or not waits_long:
        return None
    entries = sum(lane.entries for lane in model.lanes)
    rows = hot.entries / max(1.0, hot.launches)
    return Diagnosis(
        "hot_lane",
        "warning",
        model.about,
        f"the lane {hot.name} of {model.key} has {percent(share)} of the waiting of its "
        f"{count(len(model.lanes), 'lane')}: {percent(hot.entries / entries)} of the entries, "
        f"{span(hot.mean_wait_s)} each, {rows:.1f} a launch of up to {model.limits.max_batch}",
        "a larger limits.max_batch, if its launches are full; else a replica more, or a version of "
        "the model for these inputs alone, in a pool of its own",
        {
            "lane": hot.name,
            "share": share,
            "entries": hot.entries,
            "wait_s": hot.mean_wait_s,
            "rows": rows,
        },
    )


def padding_waste(model: ModelFacts, facts: Facts) -> Diagnosis | None:
    """Busy devices compute padding."""
    launches = model.launches
    if launches.count < LAUNCHES or model.busy < WASTING_BUSY or launches.padding < WASTE:
        return None
    return Diagnosis(
        "padding_waste",
        "info",
        model.about,
        f"{percent(launches.padding)} of what launches of {model.key} compute is padding, while "
        f"its devices are {percent(model.busy)} busy",
        'bucketing = true, where it is off; where the engine can, layout = "packed"; '
        "or inputs of about one length in one job",
        {"padding": launches.padding, "busy": model.busy},
    )


def misprediction(model: ModelFacts, facts: Facts) -> Diagnosis | None:
    """Launches take much longer, or shorter, than the scheduler thought."""
    ratio = model.launches.prediction
    if model.launches.count < 2 * LAUNCHES or SHORT < ratio < FAR:
        return None
    what = "late calls are let in" if ratio >= FAR else "calls are refused that would be in time"
    return Diagnosis(
        "misprediction",
        "info",
        model.about,
        f"launches of {model.key} take {ratio:.2g} times what was predicted (the median of "
        f"{model.launches.count:.0f}): {what}",
        "something else uses the device or its machine, or the model's time depends on more than "
        "its inputs' sizes; predictions follow within some hundred launches",
        {"ratio": ratio, "launches": model.launches.count},
    )


RULES = (fragmented_lanes, hot_lane, padding_waste, misprediction)
