"""A generation host in a process of its own, to be killed: the file has a line for each token.

python -m tests.integration.workers.generation.logged_host REDIS_URL FILE

It stands still once a request has HALF of its tokens, and goes on by SIGCONT.
"""

import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

import redis

from tests.integration.workers.generation.host_bench import Bench, Echo
from workers.engines.generator import Step

WORKER = "worker-2"
HALF = 200


class LoggedEcho(Echo):
    """Writes the request of each token before the host gets to know of it."""

    log: TextIO

    def step(self, max_prefill_tokens: int, prefills: Sequence[str] = ()) -> Step:
        step = super().step(max_prefill_tokens, prefills)
        lines = [f"{one.id.partition('/')[0]}\n" * len(one.tokens) for one in step.emitted]
        self.log.write("".join(lines))
        self.log.flush()
        return step


def command(url: str, path: Path) -> list[str]:
    """Starts such a host."""
    return [
        sys.executable,
        "-m",
        "tests.integration.workers.generation.logged_host",
        url,
        str(path),
    ]


def main(url: str, path: str) -> None:
    with redis.Redis.from_url(url) as client, Path(path).open("w") as log:
        bench = Bench(client, worker=WORKER, kind=LoggedEcho)
        bench.engine.log = log  # type: ignore[attr-defined]
        bench.engine.until = HALF
        signal.signal(signal.SIGCONT, lambda *_: bench.engine.go_on())
        bench.start()
        threading.Event().wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
