"""`python -m workers.engines.transformers.child FD PARENT`: the process that holds a model.

It reads messages from the socket FD, and ends with the process PARENT. An exception is answered in
place of what a message asks for; the parent ends the process then.
"""

import os
import select
import signal
import sys
import threading
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path

from jobs.processes.memory import collect_and_freeze
from workers.engines.transformers.messages import Options, Turn

_OOM_SCORE = "800"  # of 1000: where memory is short, this process is killed and not its parent


def serve(pipe: Connection) -> None:
    """Loads the model and runs steps until the parent closes the socket."""
    try:
        options: Options = pipe.recv()
        from workers.engines.transformers.child import loading

        batch, loaded = loading.load(options)
        collect_and_freeze()
        pipe.send(loaded)
        while True:
            turn: Turn = pipe.recv()
            for change in turn.changes:
                if isinstance(change, str):
                    batch.abort(change)
                else:
                    batch.add(change)
            pipe.send(batch.step(turn.max_prefill_tokens))
    except (EOFError, ConnectionError):
        return
    except Exception as error:
        pipe.send(_picklable(error))


def _picklable(error: Exception) -> Exception:
    if isinstance(error, ValueError):
        return ValueError(str(error))
    return RuntimeError(f"{type(error).__name__}: {error}")


def _end_with(parent: int) -> None:
    with suppress(ProcessLookupError):
        select.select([os.pidfd_open(parent)], [], [])
    os._exit(1)


def main() -> None:
    """Serves the process that the arguments name."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which ends us
    fd, parent = map(int, sys.argv[1:3])
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(_OOM_SCORE)
    serve(Connection(fd))


if __name__ == "__main__":
    main()
