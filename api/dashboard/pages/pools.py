"""Pages of pools: their load and their autoscaler, and one with its history."""

from typing import Annotated, Literal

from fastapi import Path, Response

from api.dashboard.auth.viewer import Form
from api.dashboard.data import past
from api.dashboard.rendering import layout, page_router
from api.http.errors import validated
from api.routes.admin import pools as json_routes
from api.routes.admin.pools import Loads
from api.schemas.common import NO_NUL
from api.schemas.pools import ScalingPause, ScalingVerb
from jobs.store.scaling import policies as store
from jobs.store.tenancy import EVERYBODY

router = page_router.router()

_PATH = f"{layout.PREFIX}/pools"
_Name = Annotated[str, Path(max_length=200, pattern=NO_NUL)]


@router.get("/pools")
def list_pools(page: layout.OperatorPage, loads: Loads) -> Response:
    """Lists pools."""
    return page.render(
        "pools.html", pools=json_routes.list_pools(page.context, page.caller, loads).data
    )


@router.get("/pools/{pool}")
def show_pool(
    page: layout.OperatorPage, loads: Loads, pool: _Name, span: past.Span = "24h"
) -> Response:
    """Shows a pool with what was decided about it."""
    found = json_routes.get_pool(page.context, page.caller, loads, pool)
    with page.context.acting(EVERYBODY) as tx:
        events = store.events(tx, pool)
    shown = past.load(page.context, f"pool:{pool}", span)
    return page.render("pool.html", pool=found, events=events, past=shown)


@router.post("/pools/{pool}/{verb}")
def do(
    page: layout.OperatorPage, form: Form, loads: Loads, pool: _Name,
    verb: Literal["pause", "resume"],
) -> Response:  # fmt: skip
    """Pauses the autoscaler of a pool, or lets it go on, with a reason."""
    reason = {"reason": form.get("reason", "").strip()}
    if verb == "pause":
        json_routes.pause_scaling(*page.arguments, loads, pool, validated(ScalingPause, reason))
        notice = f"The autoscaler of {pool} is paused: the pool keeps its replicas."
    else:
        json_routes.resume_scaling(*page.arguments, loads, pool, validated(ScalingVerb, reason))
        notice = f"The autoscaler of {pool} goes on."
    return layout.redirect(f"{_PATH}/{pool}", notice)
