"""Many clients at once, in a process of its own: `… -m ops.bench.crowd URL MODEL JOBS CLIENTS`.

Each client has one connection and posts one-item jobs, one after the other. The last line says
when the first byte left (monotonic), what CPU it took to post them, and the jobs' ids.
"""

import asyncio
import json
import sys
import time
from collections.abc import Iterator
from typing import cast
from urllib.parse import urlsplit

import uvloop

from jobs import clock


def text(number: int) -> str:
    """The one item of a job."""
    return f"small job {number}"


class Connection:
    """One connection to the api, which posts one-item jobs."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def open(cls, url: str) -> "Connection":
        address = urlsplit(url)
        return cls(*await asyncio.open_connection(address.hostname, address.port))

    async def post(self, model: str, number: int) -> str:
        """Returns the job's id once it is stored."""
        body = json.dumps({"model": model, "items": [text(number)]}).encode()
        self._writer.write(
            b"POST /jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
        )
        head = await self._reader.readuntil(b"\r\n\r\n")
        answer = await self._reader.readexactly(_content_length(head))
        if not head.startswith(b"HTTP/1.1 202 "):
            raise SystemExit(f"the api answered {head!r} {answer!r}")
        return cast(str, json.loads(answer)["id"])

    def close(self) -> None:
        self._writer.close()


def _content_length(head: bytes) -> int:
    return int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])


async def _client(url: str, model: str, numbers: Iterator[int], jobs: list[str]) -> None:
    connection = await Connection.open(url)
    jobs += [await connection.post(model, number) for number in numbers]
    connection.close()


async def _post(url: str, model: str, jobs: int, clients: int) -> list[str]:
    """All clients take their numbers from one heap, until it is empty."""
    numbers = iter(range(jobs))
    posted: list[str] = []
    await asyncio.gather(*(_client(url, model, numbers, posted) for _ in range(clients)))
    return posted


def _main(url: str, model: str, jobs: str, clients: str) -> None:
    started_s, cpu_s = clock.monotonic(), time.process_time()
    posted = uvloop.run(_post(url, model, int(jobs), int(clients)))
    figures = {
        "started_s": started_s,
        "posted_s": clock.monotonic() - started_s,
        "cpu_s": time.process_time() - cpu_s,
        "jobs": posted,
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    _main(*sys.argv[1:])
