"""The upstream of `millrace bench upstream`, a process of its own: a model behind an HTTP API that
takes one text a request, takes as long as chance has it, and refuses whom it has no slot for.

`python -m ops.bench.load.servers.fake_upstream CAPACITY` prints its port. POST /answer serves; POST
/capacity?slots=N changes how many it has; GET /counts tells what it did.
"""

import asyncio
import math
import socket
import sys
from random import Random
from typing import Any
from urllib.parse import parse_qs

import orjson
import uvicorn

from jobs import clock

MEDIAN_S, SIGMA = 0.5, 0.6
LEAST_S, MOST_S = 0.2, 2.0
_RETRY_AFTER = (b"retry-after", b"1")


class Server:
    """An ASGI app."""

    def __init__(self, slots: int) -> None:
        self._slots, self._random = slots, Random(7)
        self._busy = self._served = self._refused = 0
        self._slot_s, self._counted_s = 0.0, clock.monotonic()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        body = await _body(receive)
        if scope["path"] == "/answer":
            await self._answer(body, send)
        elif scope["path"] == "/capacity":
            self._slots = int(parse_qs(scope["query_string"].decode())["slots"][0])
            await _send(send, 200, self._slots)
        else:
            await _send(send, 200, self._counts())

    async def _answer(self, body: bytes, send: Any) -> None:
        if self._busy >= self._slots:
            self._refused += 1
            await _send(send, 429, {"detail": "too many at once"}, _RETRY_AFTER)
            return
        self._count(1)
        drawn_s = self._random.lognormvariate(math.log(MEDIAN_S), SIGMA)
        await asyncio.sleep(min(MOST_S, max(LEAST_S, drawn_s)))
        self._count(-1)
        self._served += 1
        await _send(send, 200, {"output": orjson.loads(body)["text"].upper()})

    def _count(self, more: int) -> None:
        """Sums up how many slots were busy for how long."""
        now_s = clock.monotonic()
        self._slot_s += self._busy * (now_s - self._counted_s)
        self._busy, self._counted_s = self._busy + more, now_s

    def _counts(self) -> dict[str, float]:
        self._count(0)
        return {
            "at_s": self._counted_s,
            "slots": self._slots,
            "busy": self._busy,
            "slot_s": self._slot_s,
            "served": self._served,
            "refused": self._refused,
        }


async def _body(receive: Any) -> bytes:
    body, more = b"", True
    while more:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False)
    return body


async def _send(send: Any, status: int, value: Any, *headers: tuple[bytes, bytes]) -> None:
    body = orjson.dumps(value)
    length = (b"content-length", str(len(body)).encode())
    await send({"type": "http.response.start", "status": status, "headers": [length, *headers]})
    await send({"type": "http.response.body", "body": body})


def main() -> None:
    listening = socket.create_server(("127.0.0.1", 0), backlog=1024)
    print(listening.getsockname()[1], flush=True)
    config = uvicorn.Config(Server(int(sys.argv[1])), log_level="warning", lifespan="off")
    uvicorn.Server(config).run([listening])


if __name__ == "__main__":
    main()
