"""Application: its routes are there before the first request."""

from fastapi.routing import APIRoute
from starlette.routing import Mount, Route

from api.app import create_app
from jobs.settings import Settings


def test_no_route_is_built_by_the_first_request() -> None:
    kinds = {type(route) for route in create_app(Settings()).routes}
    assert all(issubclass(kind, Route | Mount) for kind in kinds)
    assert any(issubclass(kind, APIRoute) for kind in kinds)
