"""`python -m workers.engines.transformers.child FD PARENT`: the process that holds a model.

An exception is answered in place of what a message asks for; the parent ends the process then.
"""

import gc
import importlib
from dataclasses import replace
from multiprocessing.connection import Connection

from jobs.processes.memory import collect_and_freeze
from workers.engines.generator import AdapterLoaded
from workers.engines.transformers.child_life import live
from workers.engines.transformers.messages import LoadAdapter, Options, Turn


def serve(pipe: Connection) -> None:
    """Loads the model and runs steps until the parent closes the socket."""
    try:
        options: Options = pipe.recv()
        gc.disable()  # it takes a quarter of the imports' time, and what they make stays
        from workers.engines.transformers.child import loading

        importlib.import_module("transformers.modeling_utils")  # from_pretrained would, later
        gc.freeze()
        gc.enable()
        batch, adapters, loaded = loading.load(options)
        collect_and_freeze()
        pipe.send(loaded)
        while True:
            turn: Turn = pipe.recv()
            installed: list[AdapterLoaded] = []
            for change in turn.changes:
                if isinstance(change, str):
                    batch.abort(change)
                elif isinstance(change, LoadAdapter):
                    adapters.begin(change)
                    if change.at_once:
                        installed += adapters.install(idle=True)
                else:
                    batch.add(change)
            step = batch.step(turn.max_prefill_tokens, turn.prefills)
            installed += adapters.install(idle=not step.sequences)
            pipe.send(replace(step, adapters=installed) if installed else step)
    except (EOFError, ConnectionError):
        return
    except Exception as error:
        pipe.send(_picklable(error))


def _picklable(error: Exception) -> Exception:
    if isinstance(error, ValueError):
        return ValueError(str(error))
    return RuntimeError(f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    live(serve)
