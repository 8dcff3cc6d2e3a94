"""Numbers as people read them."""

from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from typing import get_args

import pytest

from api.dashboard.rendering import formatting
from workers.scheduler.entries import FlushReason


@pytest.mark.parametrize(
    ("say", "value", "said"),
    [
        (formatting.number, 12345.4, "12,345"),
        (formatting.number, None, "–"),
        (formatting.rate, 0, "0"),
        (formatting.rate, 0.123, "0.12"),
        (formatting.rate, 12.34, "12.3"),
        (formatting.rate, 1234.5, "1,234"),
        (formatting.share, 0.305, "30 %"),
        (formatting.growth, 0.105, "+10.5 %"),
        (formatting.growth, -0.02, "-2 %"),
        (formatting.evidence, 22.36, "22.4"),
        (formatting.milliseconds, 0.0123, "12.3 ms"),
        (formatting.milliseconds, 0.00012, "0.12 ms"),
        (formatting.milliseconds, 1.5, "1.50 s"),
        (formatting.milliseconds, 0.9996, "1.00 s"),
        (formatting.milliseconds, 12, "12 s"),
        (formatting.duration, 0.0, "0 s"),
        (formatting.duration, -1.0, "0 s"),
        (formatting.duration, 0.0004, "0 s"),
        (formatting.duration, 0.048, "48 ms"),
        (formatting.duration, 0.96, "1.0 s"),
        (formatting.duration, 4.25, "4.2 s"),
        (formatting.duration, 59.6, "1 min"),
        (formatting.duration, 75, "1 min 15 s"),
        (formatting.duration, 3600, "1 h"),
        (formatting.duration, 90_061, "1 d 1 h"),
        (formatting.size, 512, "512 B"),
        (formatting.size, 1536, "1.5 KiB"),
        (formatting.size, 5 * 2**30, "5.0 GiB"),
        (formatting.sentence, "it stands", "It stands."),
    ],
)
def test_said(say: Callable[..., str], value: object, said: str) -> None:
    assert say(value) == said


@pytest.mark.parametrize(
    ("least", "most", "said"),
    [
        (0.2, 0.3, "1 s"),
        (1.6, 2.4, "2 to 3 s"),
        (64, 96, "64 to 96 s"),
        (457, 685, "8 to 12 min"),
        (6000, 9000, "2 to 3 h"),
        (1e5, 2e5, "1 to 3 d"),
    ],
)
def test_a_guess_is_said_in_one_unit(least: float, most: float, said: str) -> None:
    assert formatting.between(least, most) == said


def test_commands_are_code_and_all_else_is_text() -> None:
    assert formatting.coded("`a <b>` & c") == "<code>a &lt;b&gt;</code> &amp; c"
    assert formatting.coded("none") == "none"
    assert set(formatting.REASONS) == set(get_args(FlushReason)), "each reason is explained"


def test_a_time_is_an_element_with_the_exact_one_in_utc() -> None:
    at = datetime(2026, 5, 1, 14, 34, 56, 789_000, tzinfo=timezone(timedelta(hours=2)))
    exact = 'datetime="2026-05-01T12:34:56.789Z" title="2026-05-01T12:34:56.789Z"'
    shown = f'<time class="moment" {exact}>2026-05-01 12:34:56 UTC</time>'
    assert formatting.moment(at) == shown
    assert formatting.moment(at.isoformat()) == shown
    assert f'<time class="relative" {exact}>' in formatting.age(at)
    assert formatting.moment(None) == formatting.age(None) == "–"


def test_a_url_breaks_before_its_separators() -> None:
    shown = formatting.url("https://a.example/of/<b>?x=1&y=2").split("<wbr>")
    assert shown == ["https://a.example", "/of", "/&lt;b&gt;", "?x=1", "&amp;y=2"]
