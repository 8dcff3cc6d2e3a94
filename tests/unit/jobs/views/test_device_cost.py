"""Cost of a million items in device time, by the prices of workers."""

from decimal import Decimal
from typing import Any

from jobs.models.model import PREPARATION
from jobs.models.registry import Registry
from jobs.store.billing.usage import By, UsageRow
from jobs.telemetry.reports.reports import Report, ReportSet
from jobs.telemetry.reports.window import WindowDelta
from jobs.views import usage
from jobs.views.device_cost import DevicePrice, device_prices
from ops.cli.commands.admin import usage as command
from tests.support.cases import each

ROWS = [
    UsageRow(("m",), "m", "1", 3_000, 40, 0, 5_000_000, 0, 0, 0, Decimal(0)),
    UsageRow(("m",), "m", "2", 1_000, 0, 0, 3_000_000, 0, 0, 0, Decimal(0)),
    UsageRow(("m:adapter",), "m:adapter", "1", 10, 0, 0, 36_000, 0, 0, 0, Decimal(0)),
    UsageRow(("idle",), "idle", "1", 10, 0, 0, 0, 0, 0, 0, Decimal(0)),
    UsageRow(("fails",), "fails", "1", 0, 9, 0, 5_000_000, 0, 0, 0, Decimal(0)),
    UsageRow(("gone",), "gone", "1", 10, 0, 0, 5_000_000, 0, 0, 0, Decimal(0)),
]
PRICES = dict.fromkeys(("m", "idle", "fails"), DevicePrice(1.8, 3.6))


def worker(price: float | None, **states: str) -> Report:
    """Reports models by name@version, `_` for `@`, in these states."""
    models = {key.replace("_", "@", 1): {"state": state} for key, state in states.items()}
    details: dict[str, Any] = {"models": models} | ({} if price is None else {"price": price})
    return Report("1", "worker", 0.0, WindowDelta(60.0, {}, {}), details)


def costs(*by: By, prices: Any = PRICES) -> dict[str, Any]:
    groups = usage.Report(by, ROWS, Registry([]), prices).as_json()["data"]
    return {row.get("model", "all"): row.get("device_cost_per_million") for row in groups}


def test_a_million_items_cost_their_device_time_at_the_prices_of_an_hour() -> None:
    found = costs("model")
    # 8 s for 4,000 items: 2,000 s for a million
    assert found["m"] == {"least": 1.0, "most": 2.0}
    assert found["m:adapter"] == {"least": 1.8, "most": 3.6}  # at the price of its base
    assert [found[name] for name in ("idle", "fails", "gone")] == [None] * 3
    assert set(costs("model", prices=None).values()) == {None}
    rows = [UsageRow(("2026-11-20",), *row_of(one)) for one in ROWS]
    mixed = usage.Report(["day"], rows, Registry([]), PRICES).as_json()
    assert "device_cost_per_million" not in mixed["data"][0]  # of several models
    assert "device_cost_per_million" not in mixed["total"]


def row_of(row: UsageRow) -> Any:
    return [getattr(row, name) for name in UsageRow.__slots__[1:]]


def test_prices_are_those_of_workers_that_are_ready_and_none_where_nobody_set_one() -> None:
    dear, cheap = worker(3.6, m_1="ready", other_1="loading"), worker(1.8, m_2="ready")
    assert device_prices(ReportSet([dear, cheap])) == {"m": DevicePrice(1.8, 3.6)}
    default, old = worker(1.0, m_1="ready"), worker(None, m_1="ready")
    for reports, case in each(([], [default], [default, old])):
        with case:
            assert device_prices(ReportSet(reports)) == {}
    both = device_prices(ReportSet([dear, default]))
    assert both == {"m": DevicePrice(1.0, 3.6)}  # 1 is a price beside others


def test_workers_that_prepare_have_no_part_in_the_price_of_a_device() -> None:
    preparing = {"models": {f"m@1{PREPARATION}": {"state": "ready"}}, "price": 0.1}
    report = Report("2", "worker", 0.0, WindowDelta(60.0, {}, {}), preparing)
    found = device_prices(ReportSet([report, worker(3.6, m_1="ready")]))
    assert found == {"m": DevicePrice(3.6, 3.6)}


def test_the_command_line_tells_the_cost_where_it_is_known() -> None:
    [group, *_] = usage.Report(["model"], ROWS, Registry([]), PRICES).as_json()["data"]
    assert command.words(["m"], group).endswith("  a million for 1 to 2 of device time")
    del group["device_cost_per_million"]
    assert "million" not in command.words(["m"], group)
