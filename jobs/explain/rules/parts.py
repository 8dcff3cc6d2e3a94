"""Rules of what everything stands on: the database, Redis, keepers, the api, who gets webhooks."""

from jobs.explain.diagnosis import Diagnosis
from jobs.explain.facts import Facts
from jobs.explain.rules.enough import CALLS, TRIES
from jobs.explain.words import count, percent, span

STALLED_S = 1.0
"""A write that commits takes milliseconds; a claim and a settlement, tens of them."""
SLOW_TRANSACTION_S = 0.5
"""One in twenty transactions: those of large jobs may take long, they are few."""
ENOUGH_TRANSACTIONS = 20
SLOW_REDIS_S = 0.1
"""A step of Redis takes a tenth of a millisecond, and a call takes four of them."""
ENOUGH_COMMANDS = 50
SLOW_RECEIVER_S = 2.0
"""A receiver should answer first and work later: within a second or so."""
OVERDUE_S = 30.0
FAILING_SHARE = 0.5
LATE_LOOP_S = 0.1
GATEWAY_SHARE = 0.5
LEAST_GATEWAY_S = 0.05
TOLD_LONG_S = 10.0
"""Others told of more than that: a keeper that lives would have told too."""


def no_reports(facts: Facts) -> Diagnosis | None:
    """There is nothing to judge by."""
    if facts.reports or facts.redis.unanswered_s:
        return None
    return Diagnosis(
        "no_reports",
        "info",
        "reports",
        "no process has told of itself in the last 20 s: what follows is from the database alone",
        "MILLRACE_METRICS is off, Redis has just come back, or nothing runs",
    )


def database_stalls(facts: Facts) -> Diagnosis | None:
    """It doesn't answer, transactions wait for a lock, or everything takes long."""
    database, locks = facts.database, facts.seen.locks
    worst_s = max(database.unanswered_s, locks.longest_s, database.probe_s)
    slow = database.transactions >= ENOUGH_TRANSACTIONS and database.p95_s >= SLOW_TRANSACTION_S
    if worst_s < STALLED_S and not slow:
        return None
    says = [
        f"it hasn't answered for {span(database.unanswered_s)}" * (database.unanswered_s > 0),
        f"{count(locks.waiting, 'transaction')} wait for a lock, the longest for "
        f"{span(locks.longest_s)} on {locks.on}, which process {locks.blocker} of PostgreSQL holds"
        if locks.longest_s >= STALLED_S
        else "",
        f"the smallest write took {span(database.probe_s)}"
        if database.probe_s >= STALLED_S
        else "",
        f"one in twenty transactions takes {span(database.p95_s)} or longer" if slow else "",
    ]
    blocked = locks.longest_s >= STALLED_S
    return Diagnosis(
        "database_stalls",
        "critical" if worst_s >= STALLED_S else "warning",
        "database",
        f"the database stalls: {'; '.join(filter(None, says))}; nothing is claimed or recorded "
        "until it goes on, results wait in workers",
        f"pg_stat_activity says what process {locks.blocker} does; "
        f"pg_terminate_backend({locks.blocker}) ends it"
        if blocked
        else "its disk (fsync), its locks (pg_locks) and its load (pg_stat_activity); workers keep "
        "what they have for a minute",
        {
            "unanswered_s": database.unanswered_s,
            "longest_lock_wait_s": locks.longest_s,
            "probe_s": database.probe_s,
            "p95_s": database.p95_s,
            "errors": database.errors,
        },
    )


def redis_slow(facts: Facts) -> Diagnosis | None:
    """Every step of a call waits for it."""
    redis = facts.redis
    if redis.unanswered_s:
        return Diagnosis(
            "redis_slow",
            "critical",
            "redis",
            f"Redis hasn't answered for {span(redis.unanswered_s)}: calls are refused until it "
            "does, and nobody hears what processes tell: what follows is from the database alone",
            "whether it runs, and whether it can be reached; what workers have in hand goes on",
            {"unanswered_s": redis.unanswered_s},
        )
    slow = redis.commands >= ENOUGH_COMMANDS and redis.p95_s >= SLOW_REDIS_S
    if redis.probe_s < SLOW_REDIS_S and not slow:
        return None
    return Diagnosis(
        "redis_slow",
        "warning",
        "redis",
        f"Redis is slow: a PING took {span(redis.probe_s)}, one in twenty commands "
        f"{span(redis.p95_s)} or longer; every call waits for several",
        "its CPU (it has one), its memory (swap), long commands (SLOWLOG GET), the network",
        {"probe_s": redis.probe_s, "p95_s": redis.p95_s, "errors": redis.errors},
    )


def api_busy(facts: Facts) -> Diagnosis | None:
    """Calls wait for the api itself."""
    gateway_s, total_s = 0.0, 0.0
    for model in facts.models:
        if model.calls.answered >= CALLS:
            its_s = model.calls.stages_s.get("gateway", 0.0) * model.calls.answered
            gateway_s, total_s = (
                gateway_s + its_s,
                total_s + model.calls.mean_s * model.calls.answered,
            )
    answered = sum(m.calls.answered for m in facts.models if m.calls.answered >= CALLS)
    share, mean_s = gateway_s / max(1e-9, total_s), gateway_s / max(1.0, answered)
    slow = share >= GATEWAY_SHARE and mean_s >= LEAST_GATEWAY_S
    if facts.lag_s < LATE_LOOP_S and not slow:
        return None
    of_calls = (
        f", and calls spend {span(mean_s)} of their time ({percent(share)}) in it and on the way"
        if answered
        else ""
    )
    return Diagnosis(
        "api_busy",
        "warning",
        "api",
        f"the api is busy: its event loop was {span(facts.lag_s)} late{of_calls}",
        "more api processes behind the load balancer, on CPUs of their own; large bodies as jobs "
        "from files or S3",
        {"loop_lag_s": facts.lag_s, "gateway_s": mean_s, "share": share},
    )


def keeper_absent(facts: Facts) -> Diagnosis | None:
    """Others report, and no keeper does."""
    if facts.keepers.there or not facts.reports or facts.told_s < TOLD_LONG_S:
        return None
    return Diagnosis(
        "keeper_absent",
        "critical",
        "keeper",
        f"no keeper has told of itself in the last 20 s, {count(facts.reports, 'other process')} "
        "did: nobody nudges workers, reaps leases or sends webhooks",
        "start one (`millrace keeper`); two or more take turns",
        {"reports": float(facts.reports)},
    )


def keeper_failing(facts: Facts) -> Diagnosis | None:
    """A duty fails again and again."""
    runs, failed = facts.keepers.runs, facts.keepers.failed
    failing = {
        service: times
        for service, times in failed.items()
        if times >= TRIES and times >= FAILING_SHARE * runs.get(service, 0.0)
    }
    if not failing:
        return None
    worst = max(failing, key=lambda service: failing[service])
    return Diagnosis(
        "keeper_failing",
        "warning",
        "keeper",
        f"the keeper's duty {worst} failed {failing[worst]:.0f} of {runs[worst]:.0f} times in the "
        f"last minute ({count(len(failing), 'duty', 'duties')} fail)",
        "its log has the reason; most often the database or Redis is out of reach",
        {"service": worst, "failed": failing[worst], "runs": runs[worst]},
    )


def slow_webhook_receiver(facts: Facts) -> Diagnosis | None:
    """Deliveries wait, since who gets them is slow or refuses."""
    webhooks = facts.webhooks
    failed = webhooks.tried - webhooks.tries.get("delivered", 0.0)
    share = failed / max(1.0, webhooks.tried)
    slow = webhooks.mean_s >= SLOW_RECEIVER_S
    tried = webhooks.tried >= TRIES and (slow or share >= FAILING_SHARE)
    if not tried and webhooks.oldest_s < OVERDUE_S:
        return None
    receivers = facts.seen.receivers
    host = f"; {receivers[0].waiting} of them wait for {receivers[0].host}" if receivers else ""
    error = f" ({receivers[0].error})" if receivers and receivers[0].error else ""
    oldest = f", the oldest for {span(webhooks.oldest_s)}" if webhooks.oldest_s else ""
    fails = share >= FAILING_SHARE and not slow
    how = "fail" if fails else "are slow"
    should = "be in reach and answer 2xx" if fails else "answer 2xx at once and work afterwards"
    return Diagnosis(
        "slow_webhook_receiver",
        "warning",
        "webhooks",
        f"webhooks {how}: a try takes {span(webhooks.mean_s)}, {percent(share)} of "
        f"{webhooks.tried:.0f} failed, {count(webhooks.pending, 'delivery', 'deliveries')} wait"
        f"{oldest}{host}{error}",
        f"the receiver should {should}; what is not delivered is "
        "tried again for three days, and `millrace redeliver JOB` sends it now",
        {
            "try_s": webhooks.mean_s,
            "failed": share,
            "tries": webhooks.tried,
            "pending": webhooks.pending,
            "oldest_s": webhooks.oldest_s,
            "host": receivers[0].host if receivers else "",
        },
    )


RULES = (
    no_reports,
    database_stalls,
    redis_slow,
    api_busy,
    keeper_absent,
    keeper_failing,
    slow_webhook_receiver,
)
