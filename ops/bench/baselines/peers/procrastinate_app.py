"""procrastinate with a task that returns its argument, in an environment of its own.

`python procrastinate_app.py URL`: defers as many jobs as each line says, from concurrent
coroutines, and answers with the seconds until all have succeeded. `python procrastinate_app.py URL
worker`: runs them.
"""

import asyncio
import json
import sys
import time
from collections.abc import Iterator

from procrastinate import App, PsycopgConnector

_CLIENTS, _CONNECTIONS = 32, 16
_POLL_S = 0.02
_COUNT = "SELECT count(*) AS ended FROM procrastinate_jobs WHERE status = 'succeeded'"

app = App(connector=PsycopgConnector(conninfo=sys.argv[1], max_size=_CONNECTIONS))


@app.task(name="echo")  # type: ignore[untyped-decorator]
async def echo(text: str) -> str:
    """Returns its argument."""
    return text


async def _defer(numbers: Iterator[int]) -> None:
    for n in numbers:
        await echo.defer_async(text=f"small job {n}")


async def _ended() -> int:
    row = await app.connector.execute_query_one_async(_COUNT)
    return int(row["ended"])


async def _seconds(jobs: int) -> float:
    wanted, since_s, numbers = await _ended() + jobs, time.monotonic(), iter(range(jobs))
    await asyncio.gather(*(_defer(numbers) for _ in range(_CLIENTS)))
    while await _ended() < wanted:
        await asyncio.sleep(_POLL_S)
    return time.monotonic() - since_s


async def _answer() -> None:
    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        print(json.dumps("ready"), flush=True)
        for line in sys.stdin:
            print(json.dumps(await _seconds(json.loads(line))), flush=True)


async def _work() -> None:
    async with app.open_async():
        await app.run_worker_async(concurrency=_CLIENTS)


if __name__ == "__main__":
    asyncio.run(_work() if sys.argv[2:] else _answer())
