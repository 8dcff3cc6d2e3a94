"""Application: its routes are there before the first request, and its root leads to the others."""

from fastapi import FastAPI
from fastapi.routing import APIRoute
from starlette.routing import Mount, Route

from api.app import create_app
from api.routes import root
from jobs.settings import Settings
from tests.unit.api.asking import ask


def test_no_route_is_built_by_the_first_request() -> None:
    kinds = {type(route) for route in create_app(Settings()).routes}
    assert all(issubclass(kind, Route | Mount) for kind in kinds)
    assert any(issubclass(kind, APIRoute) for kind in kinds)


def test_a_browser_gets_to_the_dashboard_and_a_program_a_list_of_the_apis() -> None:
    app = FastAPI()
    app.include_router(root.router)
    browser = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
    [answer] = ask(app, ("GET", "/"), headers=browser)
    assert (answer.status_code, answer.headers["location"]) == (303, "/dashboard")
    [answer] = ask(app, ("GET", "/"), headers={"Accept": "*/*"})
    assert answer.status_code == 200
    assert answer.json()["apis"]["jobs"] == "/jobs"
    assert answer.headers["vary"] == "Accept"
