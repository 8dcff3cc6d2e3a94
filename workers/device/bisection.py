"""Runs a batch on an engine; bisects one that fails to isolate the failing entries."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from workers.engines import frames
from workers.engines.common.device_errors import device_failure
from workers.engines.protocol import RateLimited
from workers.items.results import WrongNumberOfOutputs, is_unexpected

_CUDA_OUT_OF_MEMORY = "CUDA error: out of memory"  # of the driver, not of torch's allocator
Run: TypeAlias = Callable[[Sequence[Any], Mapping[str, Any]], Sequence[Any]]


def run(
    engine_run: Run,
    batch: Sequence[Any],
    params: Mapping[str, Any],
    on_too_large: Callable[[int], None] = lambda rows: None,
) -> list[Any]:
    """Returns the outputs of a batch, in order, with the exception of each entry that failed alone.

    A batch that raises is halved: one failing entry of n costs about 2 log2(n) runs. A rate limit
    holds for all entries, and is not bisected. on_too_large: called with the rows of a batch that
    ran out of memory, where its halves did not. Raises DeviceFailed, which no entry explains.
    """
    try:
        outputs = list(engine_run(batch, params))
        if len(outputs) != len(batch):
            raise WrongNumberOfOutputs(f"{len(outputs)} outputs for {len(batch)} inputs")
        return outputs
    except RateLimited as limit:
        if len(batch) > 1:  # its message may quote one entry, and others may be another tenant's
            limit = RateLimited("what runs this model is rate limited", limit.retry_after_s)
        return [limit] * len(batch)
    except (Exception, SystemExit) as error:
        if len(batch) == 1 and is_unexpected(error):
            frames.keep(error, error)
        # Without its frames, which hold the memory of the failed launch.
        failure = error.with_traceback(None)
    if failed := device_failure(failure):
        raise failed
    if len(batch) == 1:
        return [failure]
    half = len(batch) // 2
    outputs = run(engine_run, batch[:half], params, on_too_large)
    outputs += run(engine_run, batch[half:], params, on_too_large)
    if _out_of_memory(failure) and not any(isinstance(o, BaseException) for o in outputs):
        on_too_large(len(batch))
    return outputs


def _out_of_memory(error: BaseException) -> bool:
    """Returns True for a lack of memory, of the host or of a torch device."""
    known = isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"
    return known or (isinstance(error, RuntimeError) and str(error).startswith(_CUDA_OUT_OF_MEMORY))
