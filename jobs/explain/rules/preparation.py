"""Rules on models whose items are prepared by workers of their own: one of the two tiers may keep
the other waiting."""

from jobs.explain.diagnosis import Diagnosis
from jobs.explain.facts import Facts, ModelFacts
from jobs.explain.formatting import count, duration, percent
from jobs.explain.rules.thresholds import BUSY, IDLE, LAUNCHES
from jobs.models.model import PREPARATION
from jobs.states import PREPARE_POOL


def no_prepare_worker(model: ModelFacts, facts: Facts) -> Diagnosis | None:
    """Finds items that nobody prepares."""
    its = preparation_of(model, facts)
    if its is None or its.workers or its.observed.states or not its.queued_items:
        return None
    return Diagnosis(
        "no_prepare_worker",
        "critical",
        model.about,
        f"no worker prepares items of {model.key}, and {count(its.queued_items, 'item')} wait for "
        "that; calls go on",
        "start one: `millrace prepare`, or `millrace up --prepare-workers 1`",
        {"queued_items": its.queued_items},
    )


def preparation_saturated(model: ModelFacts, facts: Facts) -> Diagnosis | None:
    """Finds devices that wait for preparation: they are idle, and its workers are not."""
    its = preparation_of(model, facts)
    if its is None or its.busy < BUSY or its.launches.count < LAUNCHES or not its.queued_items:
        return None
    if model.busy >= IDLE or not model.workers:
        return None
    return Diagnosis(
        "preparation_saturated",
        "warning",
        model.about,
        f"the devices of {model.key} are {percent(model.busy)} busy and wait for its preparation, "
        f"whose workers are {percent(its.busy)} busy: {count(its.queued_items, 'item')} take them "
        f"{duration(its.drain_s)}",
        f"more workers that prepare (pool {PREPARE_POOL}), not more devices",
        _evidence(model, its),
    )


def preparation_ahead(model: ModelFacts, facts: Facts) -> Diagnosis | None:
    """Finds workers that prepare and wait for the devices."""
    its = preparation_of(model, facts)
    if its is None or not its.workers or its.busy >= IDLE or not its.queued_items:
        return None
    if model.busy < BUSY or model.launches.count < LAUNCHES:
        return None
    return Diagnosis(
        "preparation_ahead",
        "info",
        model.about,
        f"workers that prepare items of {model.key} are {percent(its.busy)} busy and wait for its "
        f"devices, which are {percent(model.busy)} busy",
        "more workers in its pool, or a faster device; workers that prepare can be fewer",
        _evidence(model, its),
    )


def is_preparation(model: ModelFacts) -> bool:
    """Returns True for a preparation, on which other rules have nothing to say."""
    return model.key.endswith(PREPARATION)


def preparation_of(model: ModelFacts, facts: Facts) -> ModelFacts | None:
    """Returns the preparation of a model; None: it has none."""
    key = model.key + PREPARATION
    return next((one for one in facts.models if one.key == key), None)


def _evidence(model: ModelFacts, its: ModelFacts) -> dict[str, float | str]:
    return {
        "busy": model.busy,
        "preparation_busy": its.busy,
        "to_prepare": its.queued_items,
        "prepared": model.queued_items,
    }


RULES = (no_prepare_worker, preparation_saturated, preparation_ahead)
