"""Thresholds that several rules share."""

from jobs.explain.facts import ModelFacts

CALLS = 20  # minimum for a percentile or a mean
LAUNCHES = 10  # minimum for a mean
TRIES = 3  # minimum of webhook attempts or keeper runs: one failure is an accident

LATE_SHARE = 0.05
"""Share of calls that miss the target; admission accepts 0.03 by design."""

MUCH_WAIT = 0.25
"""Wait as a share of the target; less than that doesn't make a call late."""

BUSY = 0.9
"""Busy share of devices above which a queue grows with every burst."""
IDLE = 0.6
"""Busy share of devices below which they have spare capacity."""

GPU_BUSY = 0.8
"""Share of the time with a launch above which a GPU has its next launch in time: a worker that is
not held up keeps a launch ready, and its GPU is without one for a few per cent of the time."""
LOW_ACTIVITY = 0.4
"""Activity of a GPU below which a launch leaves most of it unused. Launches that fill one have 0.6
to 0.95; the end of each kernel and memory transfers cost the rest."""
LEAST_ACTIVITY = 0.02
"""Activity of a GPU, by kernels or SMs, below which launches don't run on it: engines of its worker
may compute on a CPU."""
FULL_SHARE = 0.8
"""Share of the most rows of a launch below which a larger limit wouldn't make launches larger."""


def is_late(model: ModelFacts) -> bool:
    """Returns True if enough of the model's calls miss their target."""
    return model.calls.judged >= CALLS and model.calls.missed >= LATE_SHARE
