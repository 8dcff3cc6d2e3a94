"""GET /, for a browser and for a program."""

import asyncio

import httpx
from fastapi import FastAPI

from api.routes import root


def ask(accept: str) -> httpx.Response:
    app = FastAPI()
    app.include_router(root.router)

    async def asked() -> httpx.Response:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as http:
            return await http.get("/", headers={"Accept": accept})

    return asyncio.run(asked())


def test_a_browser_gets_to_the_dashboard() -> None:
    answer = ask("text/html,application/xhtml+xml,*/*;q=0.8")
    assert (answer.status_code, answer.headers["location"]) == (303, "/dashboard")


def test_a_program_gets_a_list_of_the_apis() -> None:
    answer = ask("*/*")
    assert answer.status_code == 200
    assert answer.json()["apis"]["jobs"] == "/jobs"
    assert answer.headers["vary"] == "Accept"
