"""States, classes, and pools of one purpose. The same words stand in the database, the API, the
docs and the metrics."""

from typing import Literal, get_args

JobState = Literal[
    "validating",
    "queued",
    "running",
    "paused",
    "cancelling",
    "completed",
    "cancelled",
    "expired",
    "failed",
]
SliceState = Literal["ready", "leased", "held", "done"]
Outcome = Literal["succeeded", "failed", "cancelled", "expired"]
JobClass = Literal["interactive", "standard", "bulk"]
Versioning = Literal["pinned", "routed"]
"""All items of a job have the version that it was accepted for, or its slices go by routes."""

JOB_STATES: tuple[JobState, ...] = get_args(JobState)
SLICE_STATES: tuple[SliceState, ...] = get_args(SliceState)
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)
JOB_CLASSES: tuple[JobClass, ...] = get_args(JobClass)
VERSIONINGS: tuple[Versioning, ...] = get_args(Versioning)

PREPARE_POOL = "prepare"
"""Pool of the workers that prepare items of models that declare `prepare = "pool"`."""
API_POOL = "api"
"""Pool of the api processes, which serve no model."""

INTERRUPTIBLE: frozenset[JobClass] = frozenset({"standard", "bulk"})
"""Classes whose calls and jobs spot workers take; others only where nobody else is ready."""

TRANSITIONS: dict[JobState, tuple[JobState, ...]] = {
    "validating": ("queued", "failed", "cancelled", "expired"),
    "queued": ("running", "paused", "cancelling", "cancelled", "expired"),
    "running": ("completed", "paused", "cancelling", "cancelled", "expired"),
    "paused": ("queued", "running", "completed", "cancelling", "cancelled", "expired"),
    "cancelling": ("cancelled", "expired"),
    # A terminal state is left by the verb `retry` alone, which starts a new generation.
    "completed": ("queued",),
    "cancelled": ("queued", "validating"),
    "expired": ("queued", "validating"),
    "failed": ("validating",),
}

TERMINAL: frozenset[JobState] = frozenset({"completed", "cancelled", "expired", "failed"})
