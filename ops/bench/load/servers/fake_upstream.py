"""Upstream of `millrace bench upstream`: a model behind an HTTP API with few slots.

`python -m ops.bench.load.servers.fake_upstream SLOTS` prints its port. POST /answer takes one text
for a random time, or answers 429 without a free slot; POST /capacity?slots=N changes the number of
slots; GET /counts has the counters.
"""

import asyncio
import math
import socket
import sys
from random import Random

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from jobs import clock

_MEDIAN_S, _SIGMA = 0.5, 0.6
_MIN_S, _MAX_S = 0.2, 2.0


class Upstream:
    """Slots and their counters."""

    def __init__(self, slots: int) -> None:
        self._random = Random(7)
        self._counts: dict[str, float] = {"slots": slots, "at_s": clock.monotonic()}
        self._counts |= dict.fromkeys(("busy", "slot_s", "served", "refused"), 0)

    async def answer(self, request: Request) -> JSONResponse:
        """Upper-cases a text after a random time."""
        text = (await request.json())["text"]
        if self._counts["busy"] >= self._counts["slots"]:
            self._counts["refused"] += 1
            return JSONResponse({"detail": "too many at once"}, 429, {"retry-after": "1"})
        self._count(1)
        drawn_s = self._random.lognormvariate(math.log(_MEDIAN_S), _SIGMA)
        await asyncio.sleep(min(_MAX_S, max(_MIN_S, drawn_s)))
        self._count(-1)
        self._counts["served"] += 1
        return JSONResponse({"output": text.upper()})

    async def capacity(self, request: Request) -> JSONResponse:
        """Changes the number of slots."""
        self._counts["slots"] = int(request.query_params["slots"])
        return JSONResponse(self._counts["slots"])

    async def counts(self, request: Request) -> JSONResponse:
        """Counters since the start; slot_s: time for which slots were busy, summed up."""
        self._count(0)
        return JSONResponse(self._counts)

    def _count(self, more: int) -> None:
        counts, now_s = self._counts, clock.monotonic()
        counts["slot_s"] += counts["busy"] * (now_s - counts["at_s"])
        counts["busy"], counts["at_s"] = counts["busy"] + more, now_s


def _main() -> None:
    upstream = Upstream(int(sys.argv[1]))
    routes = [
        Route("/answer", upstream.answer, methods=["POST"]),
        Route("/capacity", upstream.capacity, methods=["POST"]),
        Route("/counts", upstream.counts),
    ]
    listening = socket.create_server(("127.0.0.1", 0), backlog=1024)
    print(listening.getsockname()[1], flush=True)
    config = uvicorn.Config(Starlette(routes=routes), log_level="warning", lifespan="off")
    uvicorn.Server(config).run([listening])


if __name__ == "__main__":
    _main()
