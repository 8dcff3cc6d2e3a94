"""Rules of tenants beside each other."""

from jobs.explain.diagnosis import Diagnosis
from jobs.explain.facts import Facts, ModelFacts, Use
from jobs.explain.rules.enough import is_late
from jobs.explain.words import count, percent, span

LONG_TIMES = 4.0
"""As long as others' entries, on average: launches with them are of another kind."""
BIG_SHARE = 0.5
"""Of a model's work for one tenant: others feel every launch of its."""
FEW_SHARE = 0.5
"""Of the entries at most: who has most of the work by many entries is busy, not long."""
LEAST_ENTRIES = 5
STARVED = 0.5
"""Of its fair share of the device, over a minute in which it always had work: turns are fair within
seconds, so half of it is no chance."""
LEAST_DEVICE_S = 5.0


def long_texts(facts: Facts) -> Diagnosis | None:
    """A few long entries of one tenant take what others' many short ones wait for."""
    return next(filter(None, (_of_model(model) for model in facts.models)), None)


def _of_model(model: ModelFacts) -> Diagnosis | None:
    if len(model.uses) < 2 or not is_late(model):
        return None
    its, others = model.uses[0], model.uses[1:]
    entries, units = _together(others)
    if min(its.entries, entries) < LEAST_ENTRIES:
        return None
    long, short = its.units / its.entries, units / entries
    of_entries = its.entries / (its.entries + entries)
    of_units = its.units / (its.units + units)
    if long < LONG_TIMES * short or of_units < BIG_SHARE or of_entries > FEW_SHARE:
        return None
    device_s = sum(use.device_s for use in model.uses)
    of_device = its.device_s / max(1e-9, device_s)
    return Diagnosis(
        "long_texts",
        "warning",
        f"tenant:{its.tenant}",
        f"{its.tenant} sends {model.key} inputs that are {long / max(1e-9, short):.0f} times as "
        f"long as others' ({long:,.0f} units against {short:,.0f}): {percent(of_entries)} of the "
        f"entries, {percent(of_units)} of the work, {percent(of_device)} of the device's time; "
        f"p99 of calls is {span(model.calls.p99_s or 0.0)}, the target {span(model.target_s)}",
        "degrade.truncate for them, or send them as jobs (bulk), which wait for gaps; a smaller "
        "limits.max_tokens keeps launches with them short; tokens_per_s in the tenant's limits "
        "says how much of it there may be",
        {
            "model": model.key,
            "times_as_long": long / max(1e-9, short),
            "of_entries": of_entries,
            "of_units": of_units,
            "of_device": of_device,
            "p99_s": model.calls.p99_s or 0.0,
        },
    )


def _together(uses: tuple[Use, ...]) -> tuple[float, float]:
    return sum(use.entries for use in uses), sum(use.units for use in uses)


def starved_tenant(facts: Facts) -> Diagnosis | None:
    """One has work waiting, and much less of the devices than others by their weights."""
    device_s = sum(use.device_s for model in facts.models for use in model.uses)
    starved = min(facts.tenants, key=lambda tenant: tenant.share, default=None)
    if starved is None or len(facts.tenants) < 2 or device_s < LEAST_DEVICE_S:
        return None
    if starved.share >= STARVED:
        return None
    best = max(facts.tenants, key=lambda tenant: tenant.share)
    return Diagnosis(
        "starved_tenant",
        "warning",
        f"tenant:{starved.name}",
        f"{starved.name} had {percent(starved.share)} of its fair share of the devices in the last "
        f"minute, with work waiting; {best.name} had {percent(best.share)} of its own "
        f"({count(len(facts.tenants), 'tenant')} have work waiting)",
        "its work may be for a model that few workers have, or in slices much longer than others' "
        "(limits.slice_items); its weight is in `millrace tenants`",
        {"share": starved.share, "most": best.share, "device_s": device_s},
    )


RULES = (long_texts, starved_tenant)
