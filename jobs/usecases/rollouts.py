"""Rollouts by people's word: start, hold, resume, promote, roll back."""

from collections.abc import Mapping
from typing import Any, Literal, get_args
from uuid import UUID

from jobs import ids
from jobs.errors import Conflict, Fault, Invalid, NotFound
from jobs.models.registry import Registry
from jobs.models.routing.route import Sticky
from jobs.models.routing.table import STABLE
from jobs.rollouts.controller import Decision
from jobs.rollouts.policy import Policy
from jobs.store.db import Tx
from jobs.store.registry import aliases
from jobs.store.registry import rollouts as store
from jobs.store.registry.rollouts import RolloutRow

Verb = Literal["hold", "resume", "promote", "roll_back"]
Figures = Mapping[str, dict[str, Any]]
NO_FIGURES: Figures = {}
_FROM = {"hold": ("running",), "resume": ("held",)}


def start(
    tx: Tx, registry: Registry, name: str, canary: str, *, stable: str = "", policy: Policy,
    sticky: Sticky = "", actor: str, tenant: str,
) -> RolloutRow:  # fmt: skip
    """Starts a rollout. stable: version to compare with, that of the alias `stable` where there is
    one; "": the same, or else the newest version but the canary. Where there is no such alias it
    is made: a rollback goes back to it.

    Raises UnknownModel, Invalid and Conflict.
    """
    versions = [model.version for model in registry.versions(name)]
    alias = aliases.get(tx, name, STABLE)
    others = [version for version in versions if version != canary]
    stable = stable or alias or (others[0] if others else "")
    if problem := _problem(name, versions, stable, canary):
        raise Invalid(problem, faults=[Fault(("canary",), "invalid", problem)])
    if alias and alias != stable:
        raise Conflict(
            f"the alias stable of {name} means version {alias!r}, to which a rollback goes back: "
            f"point it to {stable!r} first, or leave `stable` out"
        )
    if alias is None:
        aliases.put(tx, name, STABLE, stable, actor)
    return store.start(tx, name, stable, canary, policy, sticky, actor=actor, tenant=tenant)


def _problem(name: str, versions: list[str], stable: str, canary: str) -> str:
    if not stable:
        return f"{name} has no version but {canary!r}: there is nothing to compare it with"
    for version in (canary, stable):
        if version not in versions:
            return (
                f"{name} has no version {version!r}; there are: {', '.join(versions)}. Declare it "
                "first"
            )
    if stable == canary:
        return f"version {canary!r} of {name} is the stable one already"
    return ""


def find(tx: Tx, named: str) -> RolloutRow:
    """Returns a rollout by its id, or the open one, else the latest, of a model. Raises
    NotFound."""
    if named.startswith(f"{store.ID_PREFIX}_"):
        row = store.get(tx, _parse(named))
    else:
        row = next(iter(store.page(tx, named, limit=1)), None)
    if row is None:
        raise NotFound(f"there is no rollout {named}: `millrace rollout status` lists them")
    return row


def applicable(row: RolloutRow) -> list[Verb]:
    """Returns the verbs that have an effect on a rollout as it is."""
    if row.ended_at:
        return []
    verbs: tuple[Verb, ...] = get_args(Verb)
    return [verb for verb in verbs if row.state in _FROM.get(verb, (row.state,))]


def act(
    tx: Tx, named: str, verb: Verb, actor: str, reason: str = "", figures: Figures = NO_FIGURES
) -> RolloutRow:
    """Does to a rollout what a person says. figures: for its event, by the shown ids of rollouts.

    A rollout that is resumed has its growth of cost accepted. Raises NotFound, and Conflict where
    it has ended or changed meanwhile."""
    row = find(tx, named)
    if verb not in applicable(row):
        raise Conflict(f"{row.shown_id} of {row.name} is {row.state}: `{verb}` has no effect")
    if verb == "resume":
        store.accept_cost(tx, row)
    why = f"by {actor}{f': {reason}' if reason else ''}"
    decision = Decision(verb, why, figures.get(row.shown_id, {}))
    new = store.apply(tx, row, decision, actor)
    if new is None:
        raise Conflict(f"{row.shown_id} of {row.name} has just changed: look at it again")
    return new


def _parse(shown: str) -> UUID:
    if id := ids.parse(store.ID_PREFIX, shown):
        return id
    raise NotFound(f"there is no rollout {shown}")
