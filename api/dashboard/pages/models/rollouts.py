"""Pages of rollouts: all of them, and one with its lanes, evidence, costs and history."""

from typing import Annotated

from fastapi import Path, Query, Response

from api.dashboard.auth.viewer import Form
from api.dashboard.rendering import layout, page_router
from api.http.errors import validated
from api.routes.admin import rollouts as json_routes
from api.routes.admin.rollout_looks import LooksDep
from api.schemas.common import NO_NUL
from api.schemas.rollouts import RolloutVerb
from jobs.store.registry import rollouts as store
from jobs.store.tenancy import EVERYBODY
from jobs.usecases import rollouts
from jobs.usecases.rollouts import Verb
from jobs.views import rollout_figures
from jobs.views.rollouts import status_object

router = page_router.router()

_PATH = f"{layout.PREFIX}/rollouts"
_Named = Annotated[str, Path(max_length=200, pattern=NO_NUL)]
_DONE = {
    "hold": "is held at its step",
    "resume": "goes on",
    "promote": "is promoted: the canary gets all calls",
    "roll_back": "is rolled back: the stable version gets all calls",
}


@router.get("/rollouts")
def list_rollouts(
    page: layout.OperatorPage,
    model: Annotated[str, Query(max_length=200, pattern=NO_NUL)] = "",
) -> Response:
    """Lists rollouts, of one model or of all."""
    with page.context.acting(EVERYBODY) as tx:
        rows = store.page(tx, model)
    return page.render("rollouts.html", rows=rows, model=model)


@router.get("/rollouts/{named}")
def show_rollout(page: layout.OperatorPage, looks: LooksDep, named: _Named) -> Response:
    """Shows a rollout; `named`: its id, or a model."""
    with page.context.acting(EVERYBODY) as tx:
        row = rollouts.find(tx, named)
        events = store.events(tx, row.id)
    rollout = status_object(row, events, looks.get(row.shown_id, {}))
    figures, policy = rollout["figures"], rollout["policy"]
    return page.render(
        "rollout.html",
        row=row,
        rollout=rollout,
        verbs=rollouts.applicable(row),
        lanes=rollout_figures.lane_rows(figures),
        evidence=list(rollout_figures.evidence_rows(figures)),
        costs=rollout_figures.cost_rows(figures, policy),
        history=[
            (one, event, rollout_figures.lane_rows(event["figures"]))
            for one, event in zip(events, rollout["events"], strict=True)
        ],
    )


@router.post("/rollouts/{named}/{verb}")
def do(
    page: layout.OperatorPage, form: Form, looks: LooksDep, named: _Named, verb: Verb
) -> Response:
    """Holds, resumes, promotes or rolls back a rollout, with a reason."""
    body = validated(RolloutVerb, {"reason": form.get("reason", "").strip()})
    row = json_routes.act(*page.arguments, looks, named, verb, body)
    return layout.redirect(f"{_PATH}/{row.id}", f"The rollout of {row.model} {_DONE[verb]}")
