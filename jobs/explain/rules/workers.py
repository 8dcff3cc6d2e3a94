"""Rules on workers and upstream servers."""

from collections import Counter

from jobs.explain.diagnosis import Diagnosis
from jobs.explain.facts import Facts, UpstreamFacts
from jobs.explain.formatting import count, duration, percent

REPEATED = 2  # deaths in ten minutes: one is an accident, two have a lasting cause
LIMITED_SHARE = 0.05  # of requests
LEAST_REQUESTS = 10

_ADVICE = {
    "crashed": "the end of its log says how; its items run alone now, and fail as worker_lost if "
    "they are the cause",
    "hung": "a launch took three times as long as predicted, or longer than limits.max_launch_s: "
    "the model hangs; what was in it runs alone, for max_launch_s at most",
    "killed": "it was killed from outside (out of memory: see dmesg; or an operator), or by a "
    "call, which then fails as worker_lost, or by the loading of a model; the worker's "
    "log says which",
    "silent": "its machine or its network failed, or its process is stopped",
}


def dying_worker(facts: Facts) -> Diagnosis | None:
    """Finds workers that ended uncleanly."""
    deaths = facts.observations.deaths
    hows = Counter(death.how for death in deaths) or Counter(
        {how: round(times) for how, times in facts.deaths.items() if how != "sick"}
    )
    total = hows.total()
    if not total:
        return None
    how = deaths[0].how if deaths else max(hows, key=lambda one: hows[one])
    last = (
        f"worker {deaths[0].incarnation} of pool {deaths[0].pool} ({deaths[0].device}) ended "
        f"{duration(deaths[0].ago_s)} ago ({how})"
        if deaths
        else f"a worker ended ({how})"
    )
    within = "ten minutes" if deaths else "a minute"
    words = ", ".join(f"{times} {how}" for how, times in hows.most_common())
    of_leases = f"; {facts.reaped:.0f} leases were taken from the dead in the last minute"
    of_slices = f"; {count(facts.observations.suspects, 'slice')} run alone since"
    return Diagnosis(
        "dying_worker",
        "critical" if total >= REPEATED else "warning",
        f"worker:{deaths[0].incarnation}" if deaths else "workers",
        f"{last}; {count(total, 'death')} in {within}: {words}"
        f"{of_leases if facts.reaped else ''}{of_slices if facts.observations.suspects else ''}",
        _ADVICE.get(hows.most_common(1)[0][0], ""),
        {"deaths": float(total), "how": how, "suspects": float(facts.observations.suspects)},
    )


def sick_device(facts: Facts) -> Diagnosis | None:
    """Finds workers whose device failed."""
    sick = facts.observations.sick
    if not sick:
        return None
    first, quarantined = sick[0], [one for one in sick if one.quarantined]
    more = f"; {count(len(sick) - 1, 'more failure')} in ten minutes" if len(sick) > 1 else ""
    then = "it starts again on its own"
    advice = "a device that fails three times in a row is quarantined; look at it meanwhile"
    if quarantined:
        ids = ", ".join(str(one.incarnation) for one in quarantined)
        then = f"{count(len(quarantined), 'worker')} (id {ids}) quarantined"
        advice = (
            "check the device (nvidia-smi -q, dmesg), then `millrace worker resume "
            f"{first.incarnation}`; what it had runs elsewhere, or waits until there is a worker"
        )
    return Diagnosis(
        "sick_device",
        "critical" if quarantined else "warning",
        f"worker:{first.incarnation}",
        f"the device of worker {first.incarnation} of pool {first.pool} ({first.device}) failed "
        f"{duration(first.ago_s)} ago: {first.error or 'no reason known'}; {then}{more}",
        advice,
        {"failures": float(len(sick)), "quarantined": float(len(quarantined))},
    )


def upstream_limited(facts: Facts) -> Diagnosis | None:
    """Finds an upstream server that limits the rate or whose circuit breaker is open."""
    return next(filter(None, (_of_upstream(one) for one in facts.upstreams)), None)


def _of_upstream(upstream: UpstreamFacts) -> Diagnosis | None:
    requests = sum(upstream.requests.values())
    limited = upstream.requests.get("rate_limited", 0.0)
    share = limited / max(1.0, requests)
    if not upstream.open and (requests < LEAST_REQUESTS or share < LIMITED_SHARE):
        return None
    state = (
        "gets no requests for now, because it failed too often"
        if upstream.open
        else f"limited the rate of {percent(share)} of {requests:.0f} requests"
    )
    return Diagnosis(
        "upstream_limited",
        "critical" if upstream.open else "warning",
        f"upstream:{upstream.name}",
        f"{upstream.name} {state}; it is sent {upstream.limit:.0f} requests at a time",
        "its operator sets the limits; limits.in_flight caps the requests at a time"
        if not upstream.open
        else "check if it answers at all; it is probed again automatically",
        {"rate_limited": share, "requests": requests, "limit": upstream.limit},
    )


def pool_short(facts: Facts) -> Diagnosis | None:
    """Finds a pool whose workers don't get ready, though the autoscaler asked for them."""
    short = {pool: missing for pool, missing in facts.overdue.items() if missing > 0}
    if not short:
        return None
    pool, missing = max(short.items(), key=lambda one: one[1])
    others = f"; {count(len(short) - 1, 'other pool')} too" if len(short) > 1 else ""
    return Diagnosis(
        "pool_short",
        "warning",
        f"pool:{pool}",
        f"{count(missing, 'worker')} of pool {pool} that the autoscaler asked for aren't ready "
        f"after three boots{others}",
        f"`millrace scale history {pool}` says what was asked for, and `millrace workers` what "
        "came: look at what starts them (quota, image, device), and at the log of those that load",
        {"missing": missing},
    )


def spot_reclaimed(facts: Facts) -> Diagnosis | None:
    """Finds the pool of which the most spot workers were reclaimed in the last hour."""
    totals = {pool: sum(by.values()) for pool, by in facts.reclaimed.items()}
    if not (pool := max(totals, key=lambda name: totals[name], default="")) or not totals[pool]:
        return None
    notices = sorted(facts.reclaimed[pool].items(), key=lambda one: -one[1])
    named = ", ".join(
        f"{number:.0f} {'without notice' if by == 'silence' else f'by {by}'}"
        for by, number in notices
    )
    silent = facts.reclaimed[pool].get("silence", 0.0)
    return Diagnosis(
        "spot_reclaimed",
        "warning" if silent else "info",
        f"pool:{pool}",
        f"{count(totals[pool], 'machine')} of spot workers of pool {pool} reclaimed in the last "
        f"hour: {named}",
        f"`millrace scale history {pool}` lists them; a larger on_demand_floor, or a smaller "
        "spot_share, keeps more workers that stay"
        + ("; without a notice work is repeated: declare MILLRACE_SPOT_PROVIDER" if silent else ""),
        {"reclaimed": totals[pool], "silent": silent},
    )


RULES = (dying_worker, sick_device, pool_short, spot_reclaimed, upstream_limited)
