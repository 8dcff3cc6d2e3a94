"""Flips of an alias while calls and jobs run: when the last process follows, and whether a launch
ever has calls of two versions, or of two cohorts of a rollout.

Each version answers with its own name and its launch, so that what is counted is what ran.
"""

from collections import defaultdict
from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence
from contextlib import closing
from itertools import chain, pairwise

import orjson

from jobs import clock
from jobs.identity import OPEN
from jobs.models.routing.rollout import ActiveRollout
from jobs.models.routing.route import bucket_for
from ops.bench.harness.platform import say
from ops.bench.harness.scale import Scale
from ops.bench.load.client import Client
from ops.bench.results.report import Report
from ops.bench.rollout.traffic import Answer, traffic
from ops.bench.rollout.versions import NAME, Target, Version, target_of

ASKED = ("alias_flip_p99_s <= 1", "mixed_launches <= 0")

_PER_S = 200.0
_LAUNCH_S = 0.02  # meanwhile several calls arrive
_FLIPS, _EVERY_S = 100, 1.25
_ITEMS, _FLIPS_A_JOB = 500, 5
_ROLLOUT_S = 30.0
_PERCENT = 30.0  # of the canary, as of the control
_FOLLOWED_S = 1.5  # after which all processes route by a rollout

Member = tuple[str, Hashable]
"""Launch of a call or an item, and what all of that launch must have in common."""


def measure(report: Report, scale: Scale) -> None:
    """Flips an alias 100 times, then plays a rollout for half a minute."""
    with target_of(Version("1", _LAUNCH_S), Version("2", _LAUNCH_S)) as target:
        times, flipped, items = _flip(target, int(scale.seconds(_FLIPS)))
        report.percentiles("alias_flip_{}_s", _late_s(times, flipped), 50, 99, 100)
        rolled_out, more, cohorts = _roll_out(target, scale.seconds(_ROLLOUT_S))
    made = [*flipped, *rolled_out]
    versions = _launches(chain(_by_version(made), items, more))
    launches = [*versions, *_launches(cohorts)]
    report.add(
        mixed_launches=sum(len(parts) > 1 for parts in launches),
        launches=len(versions),
        calls_a_launch=len(made) / len({one.output for one in made}),
        unanswered=sum(one.status != 200 for one in made),
    )


def _launches(members: Iterable[Member]) -> Collection[set[Hashable]]:
    """Returns what each launch has parts of."""
    found = defaultdict[str, set[Hashable]](set)
    for launch, part in members:
        found[launch].add(part)
    return found.values()


# -- flips


def _flip(target: Target, flips: int) -> tuple[list[float], list[Answer], list[Member]]:
    """Flips the alias under calls and jobs. Returns when each flip was asked for, the calls, and
    the jobs' items."""
    say(f"{flips} flips of an alias under {_PER_S:g} calls a second")
    times, jobs, urls = list[float](), dict[str, str](), target.fleet.urls
    target.alias("2")
    with closing(Client(urls[0])) as client:
        with traffic(urls, NAME, _PER_S) as made:
            clock.sleep(_EVERY_S)
            for n in range(flips):
                if n % _FLIPS_A_JOB == 0:
                    job = client.post(NAME, [f"item {item}" for item in range(_ITEMS)])
                    jobs[job] = client.job(job)["version"]
                times.append(clock.now().timestamp())
                target.alias("12"[n % 2], api=n)
                clock.sleep(_EVERY_S)
        items = [one for job, version in jobs.items() for one in _items(client, job, version)]
    return times, made.answers, items


def _items(client: Client, job: str, version: str) -> Iterator[Member]:
    for line in client.results(job):
        output: str = orjson.loads(line)["output"]
        yield from _both(output, version)


def _by_version(calls: Iterable[Answer]) -> Iterator[Member]:
    for one in calls:
        if one.status == 200:
            yield from _both(one.output, one.version)


def _both(output: str, version: str) -> Iterator[Member]:
    """Yields the version that an answer names, and the one that ran."""
    yield output, version
    yield output, output.partition(" ")[0]


def _late_s(times: Sequence[float], calls: Sequence[Answer]) -> list[float]:
    """Returns, by flip, when the last answer by the version before came, in seconds after it was
    asked for."""
    ends = [*times, times[-1] + _EVERY_S]
    found = []
    for n, (since_s, until_s) in enumerate(pairwise(ends)):
        late = (
            one.ended_s - since_s
            for one in calls
            if since_s <= one.ended_s < until_s and one.version != "12"[n % 2]
        )
        found.append(max(late, default=0.0))
    return found


# -- cohorts


def _roll_out(target: Target, seconds: float) -> tuple[list[Answer], list[Member], list[Member]]:
    """Plays a rollout under calls and a job. Returns the calls, the job's items, and the cohorts of
    the calls for which they are known."""
    say(f"a rollout at {_PERCENT:g} percent for {seconds:g} s")
    target.alias("1")  # the version that the rollout starts from
    urls = target.fleet.urls
    with closing(Client(urls[0])) as client:
        with traffic(urls, NAME, _PER_S, keyed=True) as made:
            id = target.start("2", steps=[_PERCENT, 100], min_launches=10**9, min_stay_s=3600)
            clock.sleep(_FOLLOWED_S)
            job = client.post(NAME, [f"item {item}" for item in range(_ITEMS)])
            since_s = clock.now().timestamp()
            clock.sleep(seconds)
            until_s = clock.now().timestamp()
            rows = target.fleet.query("SELECT salt FROM rollouts WHERE ended_at IS NULL") or []
            target.ask("POST", f"/rollouts/{id}/rollback", {"reason": "the benchmark is over"})
        items = list(_items(client, job, client.job(job)["version"]))
    rollout = ActiveRollout(id, NAME, "1", "2", _PERCENT, salt=rows[0][0])
    within = [one for one in made.answers if since_s <= one.sent_s and one.ended_s <= until_s]
    return made.answers, items, list(_by_cohort(within, rollout))


def _by_cohort(calls: Iterable[Answer], rollout: ActiveRollout) -> Iterator[Member]:
    """Yields each call with the cohort that its key has."""
    for one in calls:
        if one.status == 200:
            bucket = bucket_for(rollout.sticky, rollout.salt, OPEN.tenant, "", one.key)
            yield one.output, rollout.cohort_at(bucket)
