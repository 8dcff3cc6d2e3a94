"""Rules on GPUs, by what NVML tells of them: see `jobs.telemetry.gpu_reading`."""

from collections.abc import Iterable

from jobs.explain.diagnosis import Diagnosis
from jobs.explain.facts import Facts, ModelFacts
from jobs.explain.formatting import count, duration, percent
from jobs.explain.rules.thresholds import (
    FULL_SHARE,
    GPU_BUSY,
    LAUNCHES,
    LEAST_ACTIVITY,
    LOW_ACTIVITY,
    is_late,
)
from jobs.explain.workers import GpuFacts

WAITED_S = 30.0
"""Wait of a slice, longer than the ten seconds over which a GPU's busy share is measured: all that
time it could have been claimed."""
VERY_IDLE = 0.5  # busy share below which half of the GPU is lost: a warning
THROTTLED_SHARE = 0.25  # of the minute; NVML is asked twelve times in it, and a spike is no cause
CAPPED_SHARE = 0.5  # the same for the power limit, which full load touches on a sound GPU
USED = 0.25  # busy share below which slower clocks cost nothing
_BY_LOAD = {"sw_power_cap", "sync_boost"}
"""Reasons that are settings, not trouble."""


def gpu_idles_between_launches(model: ModelFacts, facts: Facts) -> Diagnosis | None:
    """Finds GPUs without a launch although items wait that their workers could claim."""
    gpus = _that_compute(model.gpus)
    if not gpus or model.claimable_s < WAITED_S or model.launches.count < LAUNCHES:
        return None
    if model.cheaper.left_by:  # items wait on purpose
        return None
    busy = sum(gpu.busy_lately for gpu in gpus) / len(gpus)
    if busy >= GPU_BUSY:
        return None
    whose = f"the GPU of {model.key} ({gpus[0].device}) has"
    if len(gpus) > 1:
        whose = f"the {len(gpus)} GPUs of {model.key} have"
    launches = model.launches
    return Diagnosis(
        "gpu_idles_between_launches",
        "warning" if busy < VERY_IDLE else "info",
        model.about,
        f"host-bound: {whose} a launch {percent(busy)} of the time though items wait, the oldest "
        f"slice for {duration(model.claimable_s)}; between launches of "
        f"{duration(launches.seconds)} the GPU idles",
        "the worker prepares, delivers and records items more slowly than the GPU computes them: "
        'more CPU cores for it, a second worker on the GPU, prepare = "pool", or larger launches '
        f"(limits.max_batch is {model.limits.most_rows}); a slow database shows in "
        "millrace_settle_seconds",
        {
            "busy": busy,
            "claimable_s": model.claimable_s,
            "launch_s": launches.seconds,
            "launch_rows": launches.rows,
        },
    )


def launches_too_small(model: ModelFacts, facts: Facts) -> Diagnosis | None:
    """Finds GPUs that always have a launch, and are mostly unused by it, while work waits."""
    gpus = _that_compute(model.gpus)
    if not gpus or model.launches.count < LAUNCHES:
        return None
    if model.claimable_s < WAITED_S and not is_late(model):
        return None
    busy = sum(gpu.busy for gpu in gpus) / len(gpus)
    activity = sum(gpu.activity or 0.0 for gpu in gpus) / len(gpus)
    if busy < GPU_BUSY or activity >= LOW_ACTIVITY:
        return None
    launches, limits = model.launches, model.limits
    return Diagnosis(
        "launches_too_small",
        "warning" if is_late(model) else "info",
        model.about,
        f"launches of {model.key} are too small for its GPU ({gpus[0].device}): there is a "
        f"launch {percent(busy)} of the time, and {_measure(gpus)} {percent(activity)}; one has "
        f"{launches.rows:.1f} of up to {limits.most_rows} entries and takes "
        f"{duration(launches.seconds)}",
        _larger(model),
        {
            "busy": busy,
            "activity": activity,
            "launch_rows": launches.rows,
            "max_batch": float(limits.most_rows),
            "max_tokens": float(limits.max_tokens),
            "launch_s": launches.seconds,
        },
    )


def _larger(model: ModelFacts) -> str:
    limits, full = model.limits, model.launches.rows >= FULL_SHARE * model.limits.most_rows
    if full:
        first = f"a larger limits.max_batch (now {limits.most_rows})"
    elif model.claimable_s:
        first = (
            f"a larger limits.max_tokens (now {limits.max_tokens})"
            if limits.max_tokens
            else "a longer limits.window_ms, or a larger limits.max_tokens where that is left out"
        )
    else:
        first = "a longer target_ms"
    return (
        f"{first} lets one launch do more; limits.in_flight (now {limits.in_flight}) lets several "
        "run at a time; a small model leaves room for other models on the same GPU"
    )


def gpu_throttled(facts: Facts) -> Diagnosis | None:
    """Finds the GPU that computed at lower clocks for most of the last minute."""
    throttled = [(share, gpu) for gpu in facts.gpus if (share := _throttled(gpu))]
    if not throttled:
        return None
    share, gpu = max(throttled, key=lambda one: one[0])
    more = f"; {count(len(throttled) - 1, 'other GPU')} too" if len(throttled) > 1 else ""
    reasons = [reason for reason, part in gpu.throttled.items() if part >= THROTTLED_SHARE]
    hot = [reason for reason in reasons if "thermal" in reason]
    reading = gpu.reading
    power = (
        f", {reading.power_w:.0f} W of {reading.power_limit_w:.0f} W"
        if reading.power_w is not None and reading.power_limit_w is not None
        else ""
    )
    heat = f", {reading.temperature_c} °C" if reading.temperature_c is not None else ""
    advice = "nvidia-smi -q -d PERFORMANCE,POWER names what the hardware holds back"
    if hot:
        advice = "it is too hot: look at its cooling, the air at its inlet, and its neighbours"
    elif not {*reasons} - _BY_LOAD:
        advice = "a higher power limit (nvidia-smi -pl), if the card and the supply allow one"
    return Diagnosis(
        "gpu_throttled",
        "info" if not {*reasons} - _BY_LOAD else "warning",
        f"worker:{gpu.worker}",
        f"the GPU of worker {gpu.worker} ({gpu.device}) is throttled {percent(share)} of the time "
        f"({', '.join(reasons)}{heat}{power}): its launches take longer{more}",
        advice,
        {"share": share, "busy": gpu.busy, "reasons": ", ".join(reasons)},
    )


def _throttled(gpu: GpuFacts) -> float:
    """Returns the longest share of the time with a reason that matters; 0: none does."""
    if gpu.busy < USED:
        return 0.0
    return max(
        (
            min(1.0, share)
            for reason, share in gpu.throttled.items()
            if share >= (CAPPED_SHARE if reason in _BY_LOAD else THROTTLED_SHARE)
        ),
        default=0.0,
    )


def gpu_errors(facts: Facts) -> Diagnosis | None:
    """Finds a GPU with uncorrected memory errors or Xids, those of the hardware first."""
    wrong = [gpu for gpu in facts.gpus if gpu.reading.errors]
    if not wrong:
        return None
    gpu = max(wrong, key=lambda one: (_is_faulty(one), len(one.reading.errors)))
    more = f"; {count(len(wrong) - 1, 'other GPU')} too" if len(wrong) > 1 else ""
    advice = (
        "nvidia-smi -q -d ECC,ROW_REMAPPER and dmesg say more; drain the worker and reset the GPU, "
        "and replace one whose errors come back"
        if _is_faulty(gpu)
        else "a program on this GPU made an illegal access or hung: look at the worker's log, at "
        "models with kernels of their own, and at other processes on the GPU"
    )
    reading = gpu.reading
    return Diagnosis(
        "gpu_errors",
        "warning" if _is_faulty(gpu) else "info",
        f"worker:{gpu.worker}",
        f"the GPU of worker {gpu.worker} ({gpu.device}) reports {', '.join(reading.errors)}{more}",
        advice,
        {
            "ecc_uncorrected": float(reading.ecc_uncorrected or 0),
            "xids": ", ".join(map(str, sorted(reading.xids or {}))),
        },
    )


def _is_faulty(gpu: GpuFacts) -> bool:
    return bool(gpu.reading.ecc_uncorrected or gpu.reading.faults)


def _that_compute(gpus: Iterable[GpuFacts]) -> list[GpuFacts]:
    """Returns the GPUs whose activity is known, and shows that launches run on them."""
    return [gpu for gpu in gpus if gpu.activity is not None and gpu.used >= LEAST_ACTIVITY]


def _measure(gpus: list[GpuFacts]) -> str:
    """Names what `activity` is; where only kernels are counted, the SMs have no more."""
    return "the SMs are active" if all(gpu.of_sms for gpu in gpus) else "a kernel runs"


OF_MODELS = (gpu_idles_between_launches, launches_too_small)
RULES = (gpu_throttled, gpu_errors)
