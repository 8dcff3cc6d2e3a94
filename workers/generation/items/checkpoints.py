"""Checkpoints of items: what they have emitted since the last one as rows, and how they go on from
such rows. The caller holds the host's lock."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import orjson

from jobs.calls.messages import ChoiceDelta
from jobs.store.queue.checkpoints import ChoiceProgress, Piece, Progress
from jobs.store.queue.claim import Lease
from workers.engines.generator import TokenLogprob
from workers.generation.completion import opening, storable
from workers.generation.requests import Emission, Request, Sequenced, Stored

_FIRST = datetime.min.replace(tzinfo=UTC)  # before all due times


@dataclass(slots=True)
class Unsaved:
    """Output of items that is not in their checkpoints."""

    leases: list[Lease] = field(default_factory=list)  #: of the slices that the items are in
    pieces: list[Piece] = field(default_factory=list)
    _marks: list[tuple[Sequenced, Stored]] = field(default_factory=list)
    _times: list[tuple[Request, float]] = field(default_factory=list)

    def add(self, request: Request) -> None:
        """Adds the output of an item."""
        before = len(self.pieces)
        for sequence in request.sequences:
            now = Stored(len(sequence.emitted), len(sequence.text), bool(sequence.finish))
            if now != sequence.stored:
                self.pieces.append(_piece(sequence, first=len(self.pieces) == before))
                self._marks.append((sequence, now))
        if len(self.pieces) > before:
            self._times.append((request, request.device_s))

    def mark_stored(self) -> None:
        """Tells the items that the pieces are stored."""
        for sequence, stored in self._marks:
            sequence.stored = stored
        for request, device_s in self._times:
            request.stored_device_s = device_s


def unsaved(sequences: Iterable[Sequenced]) -> Unsaved:
    """Returns what items have emitted since their last checkpoint. sequences: those of them that
    have not ended."""
    found = Unsaved()
    items = {one.request: None for one in sequences if one.request.admitted_s}
    for request in items:
        found.add(request)
    if found.pieces:
        found.leases += dict.fromkeys(request.owner.lease for request in items)
    return found


def resume(request: Request, progress: Progress) -> None:
    """Lets an item that has its sequences go on from a checkpoint, before items that are new.

    Device time is added up: that of the workers that had the item before is in the checkpoint."""
    for choice in progress.choices:
        sequence = request.sequences[choice.choice]
        sequence.resume(_emission(choice))
        sequence.opening = _opening(sequence, choice.logprobs)
        sequence.stored = Stored(len(choice.tokens), 1, bool(choice.finish_reason))
    request.device_s = request.stored_device_s = progress.device_us / 1e6
    priority, _, *rest = request.place
    request.place = priority, _FIRST, *rest


def _piece(sequence: Sequenced, *, first: bool) -> Piece:
    """Returns what a sequence emitted since its last checkpoint. first: of its request, which holds
    the device time."""
    request, stored, stopped_by = sequence.request, sequence.stored, sequence.stopped_by
    lease: Lease = request.owner.lease
    device_s = request.device_s - request.stored_device_s if first else 0.0
    return Piece(
        lease.job_id,
        request.seq,
        sequence.index,
        stored.tokens,
        lease.tenant,
        sequence.emitted[stored.tokens :],
        storable("".join(sequence.text[stored.texts :])),
        _logprobs(sequence, stored),
        sequence.finish,
        stopped_by if isinstance(stopped_by, str) else None,  # no server's: it has no checkpoints
        0 if stored.tokens else sequence.cached,
        round(device_s * 1e6),
    )


def _logprobs(sequence: Sequenced, stored: Stored) -> str | None:
    """Returns rows of four elements, as older releases unpack them. They pass over the first, the
    id of a token: its own bytes stand there too and, in the first row of a choice, what is reported
    of the prompt. A row of that alone is of a request that they refuse."""
    rows: list[Any] = [
        [_named(one), one.text, one.logprob, list(map(_likely, one.top))]
        for one in sequence.logprobs[stored.tokens :]
    ]
    begins = sequence.opening if stored == Stored() else None
    if begins and (begins.logprobs or begins.prompt_logprobs):
        reported = {"logprobs": begins.logprobs, "prompt_logprobs": begins.prompt_logprobs}
        if rows:
            first = sequence.logprobs[stored.tokens]
            rows[0][0] = [first.token, list(first.own_bytes), reported]
        else:
            rows.append(reported)
    return orjson.dumps(rows).decode() if rows else None


def _opening(sequence: Sequenced, rows: Sequence[Any]) -> ChoiceDelta | None:
    """Returns what came before the output."""
    made, first = opening(sequence, ()), rows[0] if rows else None
    if isinstance(first, list):
        first = first[0][-1] if isinstance(first[0], list) else None
    return replace(made, **first) if made and isinstance(first, dict) else made


def _likely(one: TokenLogprob) -> tuple[Any, ...]:
    return _named(one), one.text, one.logprob


def _named(one: TokenLogprob) -> int | list[Any]:
    """Returns the id of a token, with its bytes where its text doesn't tell them."""
    own = one.own_bytes
    return one.token if own == one.text.encode() else [one.token, list(own)]


def _emission(choice: ChoiceProgress) -> Emission:
    finish: Any = choice.finish_reason
    logprobs = list(_read(choice.logprobs))
    return Emission(
        choice.choice,
        choice.tokens,
        choice.text,
        logprobs,
        finish,
        choice.stopped_by,
        choice.cached_tokens,
    )


def _read(rows: Iterable[Any]) -> Iterator[TokenLogprob]:
    for named, text, logprob, top in (row for row in rows if not isinstance(row, dict)):
        likely = tuple(_token(*its) for its in top)
        yield _token(named, text, logprob, likely)


def _token(
    named: int | list[Any], text: str, logprob: float, top: tuple[TokenLogprob, ...] = ()
) -> TokenLogprob:
    if isinstance(named, int):
        return TokenLogprob(named, text, logprob, top)
    return TokenLogprob(named[0], text, logprob, top, bytes(named[1]))
