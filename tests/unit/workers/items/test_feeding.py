"""Inputs of claimed slices on their way to the device: addresses are fetched together, no more than
the lanes have room for, and not for slices that go back."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import orjson
import pytest

from jobs.blobs.payloads import Payloads
from jobs.ids import new
from jobs.models.model import Limits, Model
from jobs.store.queue import claim
from jobs.store.queue.claim import InputRow, Lease
from workers.engines.protocol import Transient
from workers.items import inputs
from workers.items.in_flight import ClaimedBatch, InFlightSlice
from workers.items.sources import InputSources

MODEL = Model("m", "1", "python", fetch=True, limits=Limits(max_batch=4))
DATABASE: Any = SimpleNamespace(begin=nullcontext)


class Addresses:
    """A fetcher; `fetched` is called before each fetch."""

    def __init__(self, at_once: int = 100, fetched: Callable[[], None] = lambda: None) -> None:
        self.at_once, self.item_bytes, self._fetched = at_once, 0.0, fetched
        self.calls: list[list[str]] = []

    def fetch(self, addresses: Sequence[tuple[str, str]]) -> list[bytes | Exception]:
        """Finds the address itself at each, but at those that are away."""
        self._fetched()
        urls = [url for url, _ in addresses]
        self.calls.append(urls)
        return [Transient("away") if "away" in url else url.encode() for url in urls]


class Feed:
    """A claim of these slices, each with these inputs, that is fed."""

    def __init__(self, patch: pytest.MonkeyPatch, *slices: Sequence[Any]) -> None:
        leases = [Lease(new(), 0, len(its), 1, "t", MODEL.key, "{}") for its in slices]
        self.batch = ClaimedBatch(leases)
        self.submitted: list[Any] = []
        rows: list[InputRow] = [
            (n, seq, orjson.dumps(value).decode(), None, None)
            for n, its in enumerate(slices)
            for seq, value in enumerate(its)
        ]
        patch.setattr(inputs, "read_rows", lambda *_: rows)

    def run(self, fetcher: Any, **options: Any) -> None:
        """Feeds the device with it."""
        sources = InputSources(Payloads(), None, fetcher)
        inputs.feed(DATABASE, sources, self.batch, MODEL, self._submit, **options)

    def _submit(
        self, owners: Sequence[InFlightSlice], seqs: Sequence[int], values: Sequence[Any],
        params: Mapping[str, Any], parts: Sequence[int],
    ) -> None:  # fmt: skip
        assert len(owners) == len(seqs) == len(values) == len(parts)
        self.submitted += values


def urls(count: int, name: str = "x") -> list[str]:
    return [f"https://example.com/{name}{n}" for n in range(count)]


def test_addresses_of_all_slices_are_fetched_together(monkeypatch: pytest.MonkeyPatch) -> None:
    feed, fetcher = Feed(monkeypatch, *[[url] for url in urls(10)], ["text"]), Addresses()
    feed.run(fetcher)
    assert fetcher.calls == [urls(10)]
    assert feed.submitted == [*(url.encode() for url in urls(10)), "text"]


def test_some_are_submitted_before_the_next_are_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    submitted: list[int] = []
    feed = Feed(monkeypatch, urls(5), urls(5))
    feed.run(Addresses(4, lambda: submitted.append(len(feed.submitted))))
    assert submitted == [0, 4, 8]
    assert len(feed.submitted) == 10


def test_an_address_that_is_away_costs_its_item_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    feed = Feed(monkeypatch, [*urls(1), *urls(1, "away")], urls(1, "away"))
    feed.run(Addresses())
    assert feed.submitted == [b"https://example.com/x0"]
    [other] = feed.batch.wait() or []
    assert [type(one.output) for one in other.outcomes] == [Transient]
    assert feed.batch.slices[0].pending == 1


def test_nothing_is_fetched_for_slices_that_go_back(monkeypatch: pytest.MonkeyPatch) -> None:
    feed = Feed(monkeypatch, urls(6, "a"), urls(2, "b"))

    def release() -> None:
        feed.batch.slices[0].released = True

    feed.run(fetcher := Addresses(2, release))
    assert fetcher.calls[0] == urls(2, "a")
    assert [url for call in fetcher.calls[1:] for url in call] == urls(2, "b")
    assert [one.pending for one in feed.batch.slices] == [2, 2]  # what was submitted


def test_nothing_is_fetched_while_what_was_fills_the_lanes(monkeypatch: pytest.MonkeyPatch) -> None:
    looks, paused = iter([0, 40, 9, 8]), list[float]()
    feed, fetcher = Feed(monkeypatch, urls(4)), Addresses(2)
    fetcher.item_bytes = 16 << 20
    feed.run(fetcher, waiting=lambda: next(looks), meanwhile=paused.append)
    assert [seconds > 0 for seconds in paused] == [False, False, True, True]
    assert len(feed.submitted) == 4


def test_a_slice_whose_rows_ended_elsewhere_waits_for_none(monkeypatch: pytest.MonkeyPatch) -> None:
    empty: Any = SimpleNamespace(read=lambda places: [None] * len(places))
    model = Model("minilm", "1", "minilm", prepare="pool")
    [in_flight] = ClaimedBatch([Lease(new(), 0, 3, 1, "t", model.key, "{}")]).slices
    in_flight.expect(3)
    monkeypatch.setattr(claim, "read_inputs", lambda tx, leases: [(0, 1, '"a"', None, None)])
    rows: list[InputRow] = [(7, seq, f"#place{seq}", None, None) for seq in range(3)]
    sources = InputSources(Payloads(), empty)
    found, rest = sources.take_prepared(DATABASE, model, in_flight, rows)
    assert (found, rest) == ({}, [(7, 1, '"a"', None, None)])
    assert in_flight.pending == 1
