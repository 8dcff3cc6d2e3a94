"""Numbers as people read them."""

from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from typing import get_args

from api.dashboard.rendering import formatting
from tests.support.cases import each
from workers.scheduler.entries import FlushReason

MILLISECONDS = {0.0123: "12.3 ms", 0.00012: "0.12 ms", 1.5: "1.50 s", 0.9996: "1.00 s", 12: "12 s"}
SECONDS = {0.0: "0 s", -1.0: "0 s", 0.0004: "0 s", 0.048: "48 ms", 0.96: "1.0 s", 4.25: "4.2 s"}
MINUTES = {59.6: "1 min", 75: "1 min 15 s", 3600: "1 h", 90_061: "1 d 1 h"}
SAID: dict[Callable[..., str], dict[object, str]] = {
    formatting.number: {12345.4: "12,345", None: "–"},
    formatting.rate: {0: "0", 0.123: "0.12", 12.34: "12.3", 1234.5: "1,234"},
    formatting.share: {0.305: "30 %"},
    formatting.growth: {0.105: "+10.5 %", -0.02: "-2 %"},
    formatting.evidence: {22.36: "22.4"},
    formatting.milliseconds: MILLISECONDS,
    formatting.duration: SECONDS | MINUTES,
    formatting.size: {512: "512 B", 1536: "1.5 KiB", 5 * 2**30: "5.0 GiB"},
    formatting.sentence: {"it stands": "It stands."},
}
GUESSES = {
    (0.2, 0.3): "1 s",
    (1.6, 2.4): "2 to 3 s",
    (64, 96): "64 to 96 s",
    (457, 685): "8 to 12 min",
    (6000, 9000): "2 to 3 h",
    (1e5, 2e5): "1 to 3 d",
}


def test_figures_and_guesses_are_said_as_people_read_them() -> None:
    for say, case in each(SAID, name=lambda say: say.__name__):
        with case:
            assert {value: say(value) for value in SAID[say]} == SAID[say]
    assert {bounds: formatting.between(*bounds) for bounds in GUESSES} == GUESSES


def test_commands_are_code_and_urls_break_before_their_separators() -> None:
    assert formatting.coded("`a <b>` & c") == "<code>a &lt;b&gt;</code> &amp; c"
    assert formatting.coded("none") == "none"
    assert set(formatting.REASONS) == set(get_args(FlushReason)), "each reason is explained"
    shown = formatting.url("https://a.example/of/<b>?x=1&y=2").split("<wbr>")
    assert shown == ["https://a.example", "/of", "/&lt;b&gt;", "?x=1", "&amp;y=2"]


def test_a_time_is_an_element_with_the_exact_one_in_utc() -> None:
    at = datetime(2026, 5, 1, 14, 34, 56, 789_000, tzinfo=timezone(timedelta(hours=2)))
    exact = 'datetime="2026-05-01T12:34:56.789Z" title="2026-05-01T12:34:56.789Z"'
    shown = f'<time class="moment" {exact}>2026-05-01 12:34:56 UTC</time>'
    assert formatting.moment(at) == shown
    assert formatting.moment(at.isoformat()) == shown
    assert f'<time class="relative" {exact}>' in formatting.age(at)
    assert formatting.moment(None) == formatting.age(None) == "–"
