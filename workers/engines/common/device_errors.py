"""Errors of a device, told from others by their text: most libraries have no class for them."""

import re

from workers.engines.protocol import DeviceFailed

# At the beginning alone: an exception of a model's code may quote its input.
_FAILED = re.compile(r"(CUDA|cuDNN|HIP|NCCL) (driver |runtime )?(error|failure)\b|cudaError[A-Z]")
_MEMORY_OR_LAUNCH = re.compile(
    r"out of memory|MemoryAllocation|ALLOC_FAILED|CUBLAS_STATUS_NOT_INITIALIZED"
    r"|invalid (configuration )?argument|too many resources requested|INVALID_VALUE|NOT_SUPPORTED"
    r"|BAD_PARAM|no kernel image|invalid device function|unsupported toolchain|stream is capturing",
    re.IGNORECASE,
)
"""Errors of one launch, after which the device works on: of its size, its shape, or the build of
its model."""
_BY_INPUT = re.compile(r"device-side assert|cudaErrorAssert")
_MAX_MESSAGE = 300  # characters


def device_failure(error: object) -> DeviceFailed | None:
    """Returns the failure of the device that an exception stands for, or None."""
    if isinstance(error, DeviceFailed):
        return error
    if not isinstance(error, RuntimeError):  # as those of torch and CuPy are
        return None
    text = str(error)
    if not _FAILED.match(text) or _MEMORY_OR_LAUNCH.search(text):
        return None
    first_line = text.partition("\n")[0][:_MAX_MESSAGE]
    return DeviceFailed(first_line, by_input=bool(_BY_INPUT.search(text)))
