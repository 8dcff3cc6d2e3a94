"""Rollouts, for operators: start, look, hold, resume, promote, roll back."""

from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query, Request

from api.auth import audit
from api.context import Context, ContextDep
from api.dependencies import Operator
from api.routes.admin.rollout_looks import Looks, LooksDep
from api.schemas.common import NO_NUL
from api.schemas.rollouts import Rollout, RolloutList, RolloutRequest, RolloutVerb
from jobs.errors import Fault, Invalid
from jobs.identity import Caller
from jobs.rollouts import policy
from jobs.rollouts.policy import Policy
from jobs.store.db import Tx
from jobs.store.registry import rollouts as store
from jobs.store.registry.rollouts import RolloutRow
from jobs.store.tenancy import EVERYBODY
from jobs.usecases import rollouts
from jobs.usecases.rollouts import Verb
from jobs.views.rollouts import rollout_object, status_object

router = APIRouter(tags=["rollouts"])

Named = Annotated[
    str, Path(description="id of a rollout, or a model: its open rollout, else its latest")
]


@router.post("/rollouts", status_code=201)
def start_rollout(
    request: Request, context: ContextDep, caller: Operator, body: RolloutRequest
) -> Rollout:
    """Starts a rollout at the first step of its policy. 409 where the model has one that is
    open."""
    terms = _policy(body)
    with context.acting(EVERYBODY) as tx:
        row = rollouts.start(
            tx, context.models_file.models, body.model, body.canary, stable=body.stable,
            policy=terms, sticky=body.sticky, actor=caller.actor, tenant=caller.tenant,
        )  # fmt: skip
        _record(tx, request, caller, "start", row)
        return Rollout.model_validate(rollout_object(row))


@router.get("/rollouts")
def list_rollouts(
    context: ContextDep,
    caller: Operator,
    model: Annotated[
        str, Query(max_length=200, pattern=NO_NUL, description="of this model alone")
    ] = "",
) -> RolloutList:
    """Lists rollouts: those that are open first, then the newest."""
    with context.acting(EVERYBODY) as tx:
        rows = store.page(tx, model)
    return RolloutList.model_validate({"data": [rollout_object(row) for row in rows]})


@router.get("/rollouts/{named}")
def get_rollout(context: ContextDep, caller: Operator, looks: LooksDep, named: Named) -> Rollout:
    """Returns a rollout with its figures and its latest events."""
    with context.acting(EVERYBODY) as tx:
        row = rollouts.find(tx, named)
        events = store.events(tx, row.id)
    look = looks.get(row.shown_id, {})
    return Rollout.model_validate(status_object(row, events, look))


class _Verb:
    """Request of a person who acts on a rollout."""

    def __init__(
        self,
        request: Request,
        context: ContextDep,
        caller: Operator,
        looks: LooksDep,
        named: Named,
        body: RolloutVerb,
    ) -> None:
        self._asked = request, context, caller, looks, named, body

    def act(self, verb: Verb) -> Rollout:
        """Does it."""
        request, context, caller, looks, named, body = self._asked
        return act(request, context, caller, looks, named, verb, body)


VerbDep = Annotated[_Verb, Depends()]


@router.post("/rollouts/{named}/hold")
def hold_rollout(asked: VerbDep) -> Rollout:
    """Holds a rollout at its step. Guardrails still roll it back."""
    return asked.act("hold")


@router.post("/rollouts/{named}/resume")
def resume_rollout(asked: VerbDep) -> Rollout:
    """Lets a rollout that is held go on, and accepts the growth of its cost up to the limit."""
    return asked.act("resume")


@router.post("/rollouts/{named}/promote")
def promote_rollout(asked: VerbDep) -> Rollout:
    """Gives the canary all calls at once, and makes it the stable version."""
    return asked.act("promote")


@router.post("/rollouts/{named}/rollback")
def roll_back_rollout(asked: VerbDep) -> Rollout:
    """Gives the stable version all calls again."""
    return asked.act("roll_back")


def act(
    request: Request,
    context: Context,
    caller: Caller,
    looks: Looks,
    named: str,
    verb: Verb,
    body: RolloutVerb,
) -> Rollout:
    """Does to a rollout what a person says; its event keeps the figures of the last look."""
    figures = {id: look["figures"] for id, look in looks.items()}
    with context.acting(EVERYBODY) as tx:
        row = rollouts.act(tx, named, verb, caller.actor, body.reason, figures)
        _record(tx, request, caller, verb, row)
        return Rollout.model_validate(rollout_object(row))


def _record(tx: Tx, request: Request, caller: Caller, act: str, row: RolloutRow) -> None:
    detail = {"model": row.name, "stable": row.stable, "canary": row.canary}
    audit.record(tx, request, caller, f"rollout.{act}", row.shown_id, **detail)


def _policy(body: RolloutRequest) -> Policy:
    try:
        return policy.parse(body.policy)
    except ValueError as error:
        raise Invalid(str(error), faults=[Fault(("policy",), "invalid", str(error))]) from error
