"""Errors of calls that are not admitted, with Retry-After."""

from api.http.retry_after import retry_delay_s
from jobs.calls.lanes import Rejection, Terms
from jobs.errors import MillraceError, NoWorker, Overloaded, TooLate
from jobs.models.model import Model

_UNKNOWN_MS = 1500.0


def rejection(
    refused: Rejection, model: Model, terms: Terms, load_ms: float, *, loading: bool = False
) -> MillraceError:
    """Returns the error of a call that was not admitted on these terms.

    `load_ms`: time to load the model; 0 if not known. `loading`: a worker does so now.
    """
    if refused.why == "no_worker":
        retry_s = retry_delay_s(load_ms or _UNKNOWN_MS)
        what = "loading" if loading else "it is loaded on demand" if model.on_demand else ""
        if what and load_ms:
            what += f", about {max(1, round(load_ms / 1000))} s"
        detail = f"no worker is ready for {model.key}"
        return NoWorker(f"{detail}: {what}" if what else detail, retry_after_s=retry_s)
    if refused.why == "overloaded":
        retry_s = retry_delay_s(refused.wait_ms)
        return Overloaded(f"too many calls wait for {model.key}", retry_after_s=retry_s)
    needed_ms = refused.wait_ms + terms.one_ms
    return TooLate(
        f"an answer of {model.key} would take about {needed_ms:.0f} ms; "
        f"{max(0.0, terms.allowed_ms):.0f} ms are left for it",
        retry_after_s=retry_delay_s(needed_ms - terms.allowed_ms),
    )
