"""Payloads between the blob store and the slices in hand: inputs on their way to the device,
outputs on their way to a row."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import groupby
from typing import TypeVar

from jobs import clock
from jobs.blobs.payloads import REFERENCE_MARK, Payloads
from jobs.errors import BlobStoreUnavailable
from jobs.store.queue.claim import InputRow
from jobs.store.queue.settle import Result
from workers.items.in_flight import Ended, InFlightSlice

_log = logging.getLogger(__name__)

_T = TypeVar("_T")


def fetch(
    payloads: Payloads, holding: InFlightSlice, rows: Sequence[InputRow], give_up_s: float
) -> Sequence[InputRow]:
    """The rows of one slice with inputs in place of references. An item whose input is lost or
    corrupt ends here. While the store is away: none, and the slice goes back at no cost."""
    places = [place for place, row in enumerate(rows) if row[2][0] == REFERENCE_MARK]
    if not places:
        return rows
    texts = [rows[place][2] for place in places]
    read = _patiently(lambda: payloads.read_all(texts), lambda: holding.released, give_up_s)
    if read is None:
        holding.forget(len(rows))
        return []
    found = list(rows)
    lost = []
    for place, raw in zip(places, read, strict=True):
        index, seq, _, params, failures = rows[place]
        if isinstance(raw, bytes):
            found[place] = index, seq, raw.decode(), params, failures
        else:
            lost.append(Ended(seq, 0, 0.0, None, raw))
    if lost:
        holding.end(lost)
    gone = {ended.seq for ended in lost}
    return [row for row in found if row[1] not in gone]


def stash(
    payloads: Payloads, results: Sequence[Result], give_up_s: float
) -> Sequence[Result] | None:
    """Results as rows hold them: long outputs are stored, and referred to. None where the store
    was away until `give_up_s`, by the monotonic clock."""
    most = payloads.over_bytes  # in characters: an output in another alphabet may have more bytes
    if not any(result.output is not None and len(result.output) > most for result in results):
        return results
    return _patiently(lambda: _stashed(payloads, results), lambda: False, give_up_s)


def _stashed(payloads: Payloads, results: Sequence[Result]) -> Sequence[Result]:
    rows: list[Result] = []
    for job, group in groupby(results, key=lambda result: result.job_id):
        stashed = payloads.stash("out", job)
        for result in group:
            if result.output is not None and len(result.output) > payloads.over_bytes:
                output = stashed.add(result.seq, result.output.encode())
                rows.append(replace(result, output=output))
            else:
                rows.append(result)
        stashed.finish()
    return rows


def _patiently(act: Callable[[], _T], stopped: Callable[[], bool], give_up_s: float) -> _T | None:
    """Again and again while the blob store is away; None in the end."""
    pause_s = 0.1
    while True:
        try:
            return act()
        except BlobStoreUnavailable as error:
            _log.warning("%s", error)
            if stopped() or clock.monotonic() > give_up_s:
                return None
        clock.sleep(pause_s)
        pause_s = min(2 * pause_s, 2.0)
