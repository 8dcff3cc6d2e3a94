"""Autoscalers of pools by people's word: set, pause, resume, turn off."""

from collections.abc import Iterator

import orjson

from jobs.errors import Conflict, Fault, Invalid, NotFound
from jobs.scaling.policy import Policy
from jobs.states import API_POOL
from jobs.store import db
from jobs.store.db import Tx
from jobs.store.scaling import policies as store
from jobs.store.scaling.policies import PolicyRow


def set_policy(tx: Tx, pool: str, policy: Policy, actor: str) -> PolicyRow:
    """Turns the autoscaler of a pool on, or changes its policy. Raises Conflict where two policies
    would act on one pool; Invalid where the policy isn't one of this pool."""
    if problems := list(_problems(pool, policy)):
        raise Invalid(
            "; ".join(problems), faults=[Fault(("policy",), "invalid", one) for one in problems]
        )
    db.lock(tx, "millrace.pool_policies")  # of two that are set at once one sees the other
    for other in store.page(tx):
        if other.pool == policy.spot_pool or (other.pool != pool and _acts_on(other, policy, pool)):
            raise Conflict(
                f"{pool} and {other.pool} would both scale one pool: turn one off with "
                f"`millrace scale off {other.pool}`, or change its spot_pool"
            )
    row = store.put(tx, pool, policy, actor)
    words = f"{policy.min_replicas} to {policy.max_replicas} replicas, by {policy.actuator}"
    store.add_event(tx, pool, "set", row.desired, words, actor)
    return row


def _problems(pool: str, policy: Policy) -> Iterator[str]:
    if policy.spot_pool == pool:
        yield "spot_pool: another pool than its own"
    if policy.spot_pool and API_POOL in (pool, policy.spot_pool):
        yield f"spot_pool: a pool of workers, for one of workers; {API_POOL} is that of the apis"
    if pool == API_POOL and policy.min_replicas == 0:
        yield f"min_replicas: 1 or more in the pool {API_POOL}, or nobody is left to be asked"
    for name in ("requests_s", "lag_ms"):
        if pool != API_POOL and getattr(policy, name) != getattr(Policy(), name):
            yield f"{name}: of the pool {API_POOL} alone"


def pause(tx: Tx, pool: str, actor: str, reason: str, replicas: int | None = None) -> PolicyRow:
    """Stops decisions about a pool. replicas: that it is to have meanwhile; None: as it has.
    Raises NotFound and Invalid."""
    row = _found(tx, pool)
    if replicas is not None and replicas != row.terms.clamp(replicas):
        terms = row.terms
        problem = f"{replicas} is not within {terms.min_replicas} to {terms.max_replicas}"
        raise Invalid(problem, faults=[Fault(("replicas",), "invalid", problem)])
    store.set_paused(tx, pool, True, actor)
    if replicas is not None:
        store.decide(tx, pool, replicas, reason or f"set by {actor}", {})
    desired = row.desired if replicas is None else replicas
    store.add_event(tx, pool, "pause", desired, reason, actor)
    return _found(tx, pool)


def resume(tx: Tx, pool: str, actor: str, reason: str) -> PolicyRow:
    """Lets decisions about a pool go on. Raises NotFound."""
    row = _found(tx, pool)
    store.set_paused(tx, pool, False, actor)
    store.add_event(tx, pool, "resume", row.desired, reason, actor)
    return _found(tx, pool)


def turn_off(tx: Tx, pool: str, actor: str, reason: str) -> None:
    """Removes the policy of a pool: it keeps its replicas. Raises NotFound."""
    row = _found(tx, pool)
    store.remove(tx, pool)
    store.add_event(tx, pool, "off", row.desired, reason, actor)


def _acts_on(other: PolicyRow, policy: Policy, pool: str) -> bool:
    spot_pool = orjson.loads(other.policy).get("spot_pool", "")
    return bool(spot_pool) and spot_pool in (pool, policy.spot_pool)


def _found(tx: Tx, pool: str) -> PolicyRow:
    row = store.lock(tx, pool)
    if row is None:
        raise NotFound(
            f"the pool {pool} has no autoscaler: `millrace scale set {pool} --max 4` gives it one"
        )
    return row
