"""Requests to an application in this process, without what its lifespan starts."""

import asyncio
from typing import Any

import httpx
from fastapi import FastAPI


def ask(app: FastAPI, *requests: tuple[str, str], **options: Any) -> list[httpx.Response]:
    """Answers to requests, each a method and a path, one after another."""

    async def answers() -> list[httpx.Response]:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as http:
            return [await http.request(*request, **options) for request in requests]

    return asyncio.run(answers())
