"""Running one launch: what an engine raises is narrowed down until the guilty stand alone."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from workers.engines.protocol import RateLimited
from workers.items.results import WrongNumberOfOutputs

Run: TypeAlias = Callable[[Sequence[Any], Mapping[str, Any]], Sequence[Any]]


def run(
    engine_run: Run,
    batch: Sequence[Any],
    params: Mapping[str, Any],
    on_too_large: Callable[[int], None] = lambda rows: None,
) -> list[Any]:
    """The outputs of a launch, in order; in place of each that failed alone, its exception.

    What raises is halved: one guilty of n costs about 2 log2(n) runs. A rate limit holds for
    everybody: halves would only add to it. on_too_large: is told of so many rows that ran out of
    memory together and not by halves.
    """
    try:
        outputs = list(engine_run(batch, params))
        if len(outputs) != len(batch):
            raise WrongNumberOfOutputs(f"{len(outputs)} outputs for {len(batch)} inputs")
        return outputs
    except RateLimited as limit:
        if len(batch) > 1:  # its words may quote one of them, and others be another tenant's
            limit = RateLimited("what runs this model is rate limited", limit.retry_after_s)
        return [limit] * len(batch)
    except (Exception, SystemExit) as error:
        # Without its frames, which hold what the failed launch had allocated.
        failure = error.with_traceback(None)
    if len(batch) == 1:
        return [failure]
    half = len(batch) // 2
    outputs = run(engine_run, batch[:half], params, on_too_large)
    outputs += run(engine_run, batch[half:], params, on_too_large)
    if _out_of_memory(failure) and not any(isinstance(o, BaseException) for o in outputs):
        on_too_large(len(batch))
    return outputs


def _out_of_memory(error: BaseException) -> bool:
    """The host's memory, or a device's as torch says it."""
    return isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"
