"""What a call is told that is not let in, or was lost: an error, and when to try again."""

from api.http.retry_after import later_s
from jobs.calls.lanes import Rejection, Terms
from jobs.errors import MillraceError, NoWorker, Overloaded, TooLate
from jobs.models.model import Model

_UNKNOWN_MS = 1500.0


def rejection(refused: Rejection, model: Model, terms: Terms, load_ms: float) -> MillraceError:
    """The error of a call that was not let in on these terms. load_ms: what loading the model
    takes; 0: not known."""
    if refused.why == "no_worker":
        soon_s = later_s(load_ms or _UNKNOWN_MS)
        return NoWorker(f"no worker is ready for {model.key}", retry_after_s=soon_s)
    if refused.why == "overloaded":
        soon_s = later_s(refused.wait_ms)
        return Overloaded(f"too many calls wait for {model.key}", retry_after_s=soon_s)
    needed_ms = refused.wait_ms + terms.one_ms
    return TooLate(
        f"an answer of {model.key} would take about {needed_ms:.0f} ms; "
        f"{max(0.0, terms.allowed_ms):.0f} ms are left for it",
        retry_after_s=later_s(needed_ms - terms.allowed_ms),
    )
