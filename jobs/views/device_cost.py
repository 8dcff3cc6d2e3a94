"""Cost of a million items in device time, by the prices of the workers that serve a model now.

The ledger has the device time of all work, but no price of the devices that did it.
"""

from dataclasses import dataclass
from typing import Any

from jobs.models.model import without_stage
from jobs.telemetry.reports.reports import ReportSet

_UNSET = 1.0  # `Settings.price` where nobody set it
_HOUR_US = 3600 * 1e6
_MILLION = 1e6


@dataclass(frozen=True, slots=True)
class DevicePrice:
    """Prices of an hour of the devices of one model, in the unit of MILLRACE_PRICE."""

    least: float
    most: float

    def per_million(self, device_us: int, succeeded: int) -> dict[str, Any] | None:
        """Returns the least and the most that a million items cost which take as long as these;
        None where nothing ended, or no device time was recorded. device_us: µs, failures
        included."""
        if not device_us or not succeeded:
            return None
        hours = device_us / succeeded * _MILLION / _HOUR_US
        return {
            name: float(f"{hours * price:.4g}")
            for name, price in (("least", self.least), ("most", self.most))
        }


def device_prices(reports: ReportSet) -> dict[str, DevicePrice]:
    """Returns the prices by name of a model, whatever its version: those of the workers in which
    it is ready. Empty where no worker has a price of its own, which `MILLRACE_PRICE` sets."""
    prices: dict[str, set[float]] = {}
    for report in reports.by_kind("worker").reports:
        price = float(report.details.get("price", _UNSET))
        for key, model in report.details.get("models", {}).items():
            if model.get("state") == "ready" and without_stage(key) == key:
                prices.setdefault(key.rpartition("@")[0], set()).add(price)
    if all(its == {_UNSET} for its in prices.values()):
        return {}
    return {name: DevicePrice(min(its), max(its)) for name, its in prices.items()}
