"""Errors of the framework itself."""

import asyncio
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from api.http import errors


def _route() -> None:
    pass


def test_the_paths_are_compiled_once_for_all_wrong_methods(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[str] = []
    compile_path = errors.compile_path

    def counted(path: str) -> Any:
        compiled.append(path)
        return compile_path(path)

    monkeypatch.setattr(errors, "compile_path", counted)
    app = FastAPI()
    errors.install(app)
    for path in ("/one", "/two/{id}"):
        app.get(path)(_route)
        app.delete(path)(_route)

    async def allowed() -> list[str]:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as http:
            found = [await http.post(path) for path in ("/one", "/two/2", "/one")]
        assert [each.status_code for each in found] == [405, 405, 405]
        return [each.headers["allow"] for each in found]

    assert asyncio.run(allowed()) == ["DELETE, GET"] * 3
    assert compiled == ["/one", "/two/{id}"]
