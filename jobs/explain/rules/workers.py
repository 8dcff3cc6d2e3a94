"""Rules of workers and of those who run models for us elsewhere."""

from collections import Counter

from jobs.explain.diagnosis import Diagnosis
from jobs.explain.facts import Facts, UpstreamFacts
from jobs.explain.words import count, percent, span

AGAIN = 2
"""Deaths in ten minutes: one is an accident, two are a cause that is still there."""
LIMITED_SHARE = 0.05
LEAST_REQUESTS = 10

_ADVICE = {
    "crashed": "the end of its log says how; items that it fell over run alone now, and end as "
    "worker_lost if they are why",
    "hung": "a launch took longer than limits.max_launch_s: a model that hangs, or a limit that is "
    "too short for it",
    "killed": "it was ended from outside (the kernel, for want of memory: dmesg; or an operator), "
    "or by what was no item: a call, which then ends as worker_lost, or the loading of a model; "
    "the worker's log says which",
    "silent": "its machine or its network is gone, or it is stopped: nobody saw it end",
}


def dying_worker(facts: Facts) -> Diagnosis | None:
    """Workers end without a goodbye."""
    deaths = facts.seen.deaths
    hows = Counter(death.how for death in deaths) or Counter(
        {how: round(times) for how, times in facts.deaths.items()}
    )
    total = hows.total()
    if not total:
        return None
    how = deaths[0].how if deaths else max(hows, key=lambda one: hows[one])
    last = (
        f"worker {deaths[0].incarnation} of pool {deaths[0].pool} ({deaths[0].device}) ended "
        f"{span(deaths[0].ago_s)} ago ({how})"
        if deaths
        else f"a worker ended ({how})"
    )
    within = "ten minutes" if deaths else "a minute"
    words = ", ".join(f"{times} {how}" for how, times in hows.most_common())
    of_leases = f"; {facts.reaped:.0f} leases were taken from the dead in the last minute"
    of_slices = f"; {count(facts.seen.suspects, 'slice')} run alone since"
    return Diagnosis(
        "dying_worker",
        "critical" if total >= AGAIN else "warning",
        f"worker:{deaths[0].incarnation}" if deaths else "workers",
        f"{last}; {count(total, 'death')} in {within}: {words}"
        f"{of_leases if facts.reaped else ''}{of_slices if facts.seen.suspects else ''}",
        _ADVICE.get(how, ""),
        {"deaths": float(total), "how": how, "suspects": float(facts.seen.suspects)},
    )


def upstream_limited(facts: Facts) -> Diagnosis | None:
    """A server that someone else runs takes less than it is sent, or is left alone."""
    return next(filter(None, (_of_upstream(one) for one in facts.upstreams)), None)


def _of_upstream(upstream: UpstreamFacts) -> Diagnosis | None:
    asked = sum(upstream.requests.values())
    limited = upstream.requests.get("rate_limited", 0.0)
    share = limited / max(1.0, asked)
    if not upstream.open and (asked < LEAST_REQUESTS or share < LIMITED_SHARE):
        return None
    state = (
        "is left alone for now, since it failed too often"
        if upstream.open
        else f"said to come back later for {percent(share)} of {asked:.0f} requests"
    )
    return Diagnosis(
        "upstream_limited",
        "critical" if upstream.open else "warning",
        f"upstream:{upstream.name}",
        f"{upstream.name} {state}; it is sent {upstream.limit:.0f} requests at a time",
        "its operator's limits decide; limits.in_flight is the most that it is sent at a time"
        if not upstream.open
        else "see whether it answers at all; it is asked again by itself in a moment",
        {"rate_limited": share, "requests": asked, "limit": upstream.limit},
    )


RULES = (dying_worker, upstream_limited)
