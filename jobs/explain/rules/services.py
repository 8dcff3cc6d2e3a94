"""Rules on shared services: database, Redis, keepers, api, webhook receivers."""

from jobs.explain.diagnosis import Diagnosis
from jobs.explain.facts import Facts
from jobs.explain.formatting import count, duration, percent
from jobs.explain.rules.thresholds import CALLS, TRIES

STALLED_S = 1.0  # a committed write takes milliseconds, a claim or settlement tens of them
SLOW_TRANSACTION_S = 0.5  # p95: the long ones of large jobs are few
ENOUGH_TRANSACTIONS = 20
SLOW_REDIS_S = 0.1  # a command takes 0.1 ms, and a call takes four of them
ENOUGH_COMMANDS = 50
SLOW_RECEIVER_S = 2.0  # a receiver should answer within a second
OVERDUE_S = 30.0
FAILING_SHARE = 0.5  # of attempts or runs
LATE_LOOP_S = 0.1
GATEWAY_SHARE = 0.5  # of the latency of calls
LEAST_GATEWAY_S = 0.05
MIN_WINDOW_S = 10.0  # of a report: a live keeper would have reported by then


def no_reports(facts: Facts) -> Diagnosis | None:
    """Finds that no process reports."""
    if facts.reports or facts.redis.unanswered_s:
        return None
    return Diagnosis(
        "no_reports",
        "info",
        "reports",
        "no process has reported in the last 20 s: all findings are from the database alone",
        "MILLRACE_METRICS is off, Redis has just restarted, or nothing runs",
    )


def database_stalls(facts: Facts) -> Diagnosis | None:
    """Finds a database that doesn't answer, is slow, or whose transactions wait for a lock."""
    database, locks = facts.database, facts.observations.locks
    worst_s = max(database.unanswered_s, locks.longest_s, database.probe_s)
    slow = database.operations >= ENOUGH_TRANSACTIONS and database.p95_s >= SLOW_TRANSACTION_S
    if worst_s < STALLED_S and not slow:
        return None
    symptoms = [
        f"it hasn't answered for {duration(database.unanswered_s)}" * (database.unanswered_s > 0),
        f"{count(locks.waiting, 'transaction')} wait for a lock, the longest for "
        f"{duration(locks.longest_s)} on {locks.on}, which process {locks.blocker} of PostgreSQL "
        "holds"
        if locks.longest_s >= STALLED_S
        else "",
        f"the smallest write took {duration(database.probe_s)}"
        if database.probe_s >= STALLED_S
        else "",
        f"one in twenty transactions takes {duration(database.p95_s)} or longer" if slow else "",
    ]
    blocked = locks.longest_s >= STALLED_S
    return Diagnosis(
        "database_stalls",
        "critical" if worst_s >= STALLED_S else "warning",
        "database",
        f"the database stalls: {'; '.join(filter(None, symptoms))}; nothing is claimed or recorded "
        "until it recovers, results wait in workers",
        f"pg_stat_activity says what process {locks.blocker} does; "
        f"pg_terminate_backend({locks.blocker}) ends it"
        if blocked
        else "check its disk (fsync), its locks (pg_locks) and its load (pg_stat_activity); "
        "workers keep results for a minute",
        {
            "unanswered_s": database.unanswered_s,
            "longest_lock_wait_s": locks.longest_s,
            "probe_s": database.probe_s,
            "p95_s": database.p95_s,
            "errors": database.errors,
        },
    )


def redis_slow(facts: Facts) -> Diagnosis | None:
    """Finds a Redis that is slow or doesn't answer."""
    redis = facts.redis
    if redis.unanswered_s:
        return Diagnosis(
            "redis_slow",
            "critical",
            "redis",
            f"Redis hasn't answered for {duration(redis.unanswered_s)}: calls are refused until it "
            "does, and reports are missing: all other findings are from the database alone",
            "check that it runs and is reachable; leased work continues",
            {"unanswered_s": redis.unanswered_s},
        )
    slow = redis.operations >= ENOUGH_COMMANDS and redis.p95_s >= SLOW_REDIS_S
    if redis.probe_s < SLOW_REDIS_S and not slow:
        return None
    return Diagnosis(
        "redis_slow",
        "warning",
        "redis",
        f"Redis is slow: a PING took {duration(redis.probe_s)}, one in twenty commands "
        f"{duration(redis.p95_s)} or longer; every call waits for several",
        "check its CPU (it uses one), its memory (swap), slow commands (SLOWLOG GET), the network",
        {"probe_s": redis.probe_s, "p95_s": redis.p95_s, "errors": redis.errors},
    )


def api_busy(facts: Facts) -> Diagnosis | None:
    """Finds calls that wait for the api itself."""
    calls = [m.calls for m in facts.models if m.calls.answered >= CALLS]
    answered = sum(its.answered for its in calls)
    gateway_s = sum(its.stages_s.get("gateway", 0.0) * its.answered for its in calls)
    total_s = sum(its.mean_s * its.answered for its in calls)
    share, mean_s = gateway_s / max(1e-9, total_s), gateway_s / max(1.0, answered)
    slow = share >= GATEWAY_SHARE and mean_s >= LEAST_GATEWAY_S
    if facts.lag_s < LATE_LOOP_S and not slow:
        return None
    of_calls = (
        f", and calls spend {duration(mean_s)} ({percent(share)}) in it and in transit"
        if answered
        else ""
    )
    return Diagnosis(
        "api_busy",
        "warning",
        "api",
        f"the api is busy: its event loop was {duration(facts.lag_s)} late{of_calls}",
        "more api processes behind the load balancer, on CPUs of their own; large bodies as jobs "
        "from files or S3",
        {"loop_lag_s": facts.lag_s, "gateway_s": mean_s, "share": share},
    )


def keeper_absent(facts: Facts) -> Diagnosis | None:
    """Finds that no keeper reports although other processes do."""
    if facts.keepers.count or not facts.reports or facts.window_s < MIN_WINDOW_S:
        return None
    return Diagnosis(
        "keeper_absent",
        "critical",
        "keeper",
        "no keeper has reported in the last 20 s, but "
        f"{count(facts.reports, 'other process', 'other processes')} did: nothing nudges workers, "
        "reaps leases or sends webhooks",
        "start one (`millrace keeper`); several share the work",
        {"reports": float(facts.reports)},
    )


def keeper_failing(facts: Facts) -> Diagnosis | None:
    """Finds a keeper service that fails repeatedly."""
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
        f"the keeper's service {worst} failed {failing[worst]:.0f} of {runs[worst]:.0f} times in "
        f"the last minute ({count(len(failing), 'service')} fail)",
        "its log has the cause; most often the database or Redis is unreachable",
        {"service": worst, "failed": failing[worst], "runs": runs[worst]},
    )


def slow_webhook_receiver(facts: Facts) -> Diagnosis | None:
    """Finds deliveries that wait because a receiver is slow or fails."""
    webhooks = facts.webhooks
    failed = webhooks.tried - webhooks.tries.get("delivered", 0.0)
    share = failed / max(1.0, webhooks.tried)
    slow = webhooks.mean_s >= SLOW_RECEIVER_S
    tried = webhooks.tried >= TRIES and (slow or share >= FAILING_SHARE)
    if not tried and webhooks.oldest_s < OVERDUE_S:
        return None
    receivers = facts.observations.receivers
    host = f"; {receivers[0].waiting} of them wait for {receivers[0].host}" if receivers else ""
    error = f" ({receivers[0].error})" if receivers and receivers[0].error else ""
    oldest = f", the oldest for {duration(webhooks.oldest_s)}" if webhooks.oldest_s else ""
    fails = share >= FAILING_SHARE and not slow
    how = "fail" if fails else "are slow"
    should = "be reachable and answer 2xx" if fails else "answer 2xx at once and work afterwards"
    return Diagnosis(
        "slow_webhook_receiver",
        "warning",
        "webhooks",
        f"webhooks {how}: a try takes {duration(webhooks.mean_s)}, {percent(share)} of "
        f"{webhooks.tried:.0f} failed, {count(webhooks.pending, 'delivery', 'deliveries')} wait"
        f"{oldest}{host}{error}",
        f"the receiver should {should}; deliveries are retried for three days, and `millrace "
        "redeliver JOB` sends it now",
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
