"""Rules on tenants that share models and devices."""

from jobs.explain.diagnosis import Diagnosis
from jobs.explain.facts import Facts, ModelFacts, Use
from jobs.explain.formatting import count, duration, percent
from jobs.explain.rules.thresholds import is_late

LONG_TIMES = 4.0  # mean input length relative to that of other tenants
BIG_SHARE = 0.5  # of the model's work
FEW_SHARE = 0.5  # of the entries at most: more mean many inputs, not long ones
LEAST_ENTRIES = 5
STARVED = 0.5  # of its fair share over a minute; scheduling is fair within seconds
LEAST_DEVICE_S = 5.0


def long_texts(facts: Facts) -> Diagnosis | None:
    """Finds a tenant whose few long entries delay many short ones of others."""
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
        f"entries, {percent(of_units)} of the work, {percent(of_device)} of the device's time; p99 "
        f"of calls is {duration(model.calls.p99_s or 0.0)}, the target {duration(model.target_s)}",
        "degrade.truncate for them, or send them as jobs (bulk), which use gaps; a smaller "
        "limits.max_tokens keeps launches short; tokens_per_s in the tenant's limits caps them",
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
    """Finds a tenant with a backlog that gets much less than its fair share of the devices."""
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
        f"minute although it had a backlog; {best.name} had {percent(best.share)} of its own "
        f"({count(len(facts.tenants), 'tenant')} have a backlog)",
        "its work may need a model that few workers have, or have much longer slices "
        "(limits.slice_items); `millrace tenants` shows its weight",
        {"share": starved.share, "most": best.share, "device_s": device_s},
    )


RULES = (long_texts, starved_tenant)
