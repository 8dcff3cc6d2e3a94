"""Rules on lanes and batching."""

from jobs.explain.diagnosis import Diagnosis
from jobs.explain.facts import Facts, ModelFacts
from jobs.explain.formatting import count, duration, percent
from jobs.explain.rules.thresholds import CALLS, LAUNCHES, MUCH_WAIT, is_late

MANY_LANES = 2.0  # lanes per concurrent launch; with fewer, each finds a replica
LEAST_LANES = 4
SMALL_ROWS = 2.0  # entries per launch; with fewer there is hardly any batching
HOT_SHARE = 0.6  # of the total wait, in one lane
HOT_LANES = 3  # at least
WASTE = 0.5  # padding share; lengths within a bucket differ by half of it at most
WASTING_BUSY = 0.5  # busy share; on an idle device padding doesn't matter
FAR, SHORT = 1.5, 0.6
"""Median of actual over predicted launch time: above, late calls are admitted; below, calls are
rejected that would be in time."""


def fragmented_lanes(model: ModelFacts, facts: Facts) -> Diagnosis | None:
    """Finds entries spread over so many lanes that each is launched alone."""
    lanes, launches = len(model.lanes), model.launches
    if launches.count < LAUNCHES or not is_late(model):
        return None
    if lanes < max(LEAST_LANES, MANY_LANES * model.slots) or launches.rows >= SMALL_ROWS:
        return None
    if model.limits.most_rows < 2:
        return None  # one lane would not batch either
    return Diagnosis(
        "fragmented_lanes",
        "warning",
        model.about,
        f"devices are {percent(model.busy)} busy and p99 rises to "
        f"{duration(model.calls.p99_s or 0.0)} (target {duration(model.target_s)}): "
        f"{count(lanes, 'lane')} of {model.key} share {count(model.slots, 'launch', 'launches')} "
        f"at a time, mean launch {launches.rows:.1f} of {model.limits.most_rows}",
        "merge buckets (bucketing = false, if lengths differ little) or let clients use the same "
        "parameters: each combination has its own lane; or add replicas, about one per two lanes "
        "that are busy at once",
        {
            "busy": model.busy,
            "lanes": float(lanes),
            "slots": model.slots,
            "rows": launches.rows,
            "p99_s": model.calls.p99_s or 0.0,
        },
    )


def hot_lane(model: ModelFacts, facts: Facts) -> Diagnosis | None:
    """Finds a lane with most of the total wait."""
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
        f"{duration(hot.mean_wait_s)} each, {rows:.1f} a launch of up to {model.limits.most_rows}",
        "a larger limits.max_batch if its launches are full; else another replica, or a version of "
        "the model for these inputs alone, in its own pool",
        {
            "lane": hot.name,
            "share": share,
            "entries": hot.entries,
            "wait_s": hot.mean_wait_s,
            "rows": rows,
        },
    )


def padding_waste(model: ModelFacts, facts: Facts) -> Diagnosis | None:
    """Finds busy devices that compute padding."""
    launches = model.launches
    if launches.count < LAUNCHES or model.busy < WASTING_BUSY or launches.padding < WASTE:
        return None
    return Diagnosis(
        "padding_waste",
        "info",
        model.about,
        f"{percent(launches.padding)} of what launches of {model.key} compute is padding, while "
        f"its devices are {percent(model.busy)} busy",
        'bucketing = true; layout = "packed" if the engine supports it; or jobs with inputs of '
        "similar length",
        {"padding": launches.padding, "busy": model.busy},
    )


def misprediction(model: ModelFacts, facts: Facts) -> Diagnosis | None:
    """Finds launches that take much longer, or shorter, than predicted."""
    ratio = model.launches.prediction
    if model.launches.count < 2 * LAUNCHES or SHORT < ratio < FAR:
        return None
    effect = (
        "late calls are admitted" if ratio >= FAR else "calls are rejected that would be in time"
    )
    return Diagnosis(
        "misprediction",
        "info",
        model.about,
        f"launches of {model.key} take {ratio:.2g} times what was predicted (the median of "
        f"{model.launches.count:.0f}): {effect}",
        "something else uses the device or its machine, or launch time depends on more than input "
        "size; predictions adapt within a few hundred launches",
        {"ratio": ratio, "launches": model.launches.count},
    )


RULES = (fragmented_lanes, hot_lane, padding_waste, misprediction)
