"""Rules on models that generate."""

from jobs.explain.diagnosis import Diagnosis
from jobs.explain.facts import Facts, ModelFacts
from jobs.explain.formatting import count, duration, percent
from jobs.explain.rules.thresholds import CALLS, LATE_SHARE, LAUNCHES

FULL = 0.95  # of the KV blocks in use; a few are free between two ends
PREEMPTIONS = 10  # in a minute
HOGGED = 0.5  # of the blocks in use, one tenant's
STEP_TIMES = 2.0  # duration of a step that computes prompts, relative to others


def kv_cache_full(model: ModelFacts, facts: Facts) -> Diagnosis | None:
    """Finds calls that wait, or give way, because no KV block is free."""
    its = model.generation
    if its.kv_usage < FULL or not (its.waiting or its.preemptions >= PREEMPTIONS):
        return None
    return Diagnosis(
        "kv_cache_full",
        "warning",
        model.about,
        f"{percent(its.kv_usage)} of the KV blocks of {model.key} are in use: "
        f"{count(its.running, 'sequence')} run, {count(its.waiting, 'call')} wait, "
        f"{count(its.preemptions, 'call')} gave way in the last minute",
        "more blocks in the model's options if the device has memory left; more workers; clients "
        "that ask for a smaller max_tokens: expected output is set aside at admission",
        {
            "kv_usage": its.kv_usage,
            "running": its.running,
            "waiting": its.waiting,
            "preemptions": its.preemptions,
        },
    )


def prefill_starves_decode(model: ModelFacts, facts: Facts) -> Diagnosis | None:
    """Finds tokens that come late because steps compute prompts."""
    its = model.generation
    if its.itl_judged < CALLS or its.itl_missed < LATE_SHARE:
        return None
    with_s, without_s = its.prefilling.seconds, its.decoding.seconds
    if min(its.prefilling.count, its.decoding.count) < LAUNCHES or with_s < STEP_TIMES * without_s:
        return None
    return Diagnosis(
        "prefill_starves_decode",
        "warning",
        model.about,
        f"{percent(its.itl_missed)} of the calls of {model.key} get their tokens too slowly: steps "
        f"that compute prompts take {duration(with_s)}, others {duration(without_s)}",
        "a smaller target_itl_ms: a step computes fewer tokens of prompts then, and first tokens "
        "come later (target_ttft_ms); or more workers; long prompts as jobs",
        {
            "itl_missed": its.itl_missed,
            "prefill_step_s": with_s,
            "decode_step_s": without_s,
            "prefill_steps": its.prefilling.count,
        },
    )


def kv_cache_hogged(model: ModelFacts, facts: Facts) -> Diagnosis | None:
    """Finds a tenant that has most of the KV blocks while calls wait for some."""
    its = model.generation
    used = sum(its.blocks.values())
    if its.kv_usage < FULL or not its.waiting or len(its.blocks) < 2:
        return None
    tenant, blocks = next(iter(its.blocks.items()))
    share = blocks / max(1.0, used)
    if share < HOGGED:
        return None
    return Diagnosis(
        "kv_cache_hogged",
        "warning",
        f"tenant:{tenant}",
        f"{tenant} has {percent(share)} of the KV blocks of {model.key} that are in use, and "
        f"{count(its.waiting, 'call')} wait for some",
        "tokens_per_min or calls_in_flight in its limits; its weight; jobs (bulk) for what may "
        "wait: items give their blocks to calls",
        {"model": model.key, "share": share, "blocks": blocks, "waiting": its.waiting},
    )


RULES = (kv_cache_full, prefill_starves_decode, kv_cache_hogged)
