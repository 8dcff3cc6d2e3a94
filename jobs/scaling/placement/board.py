"""State of a placement: devices, the models on them, and the load that each is planned to take."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from jobs.scaling.placement.demand import Demand, Kind

ROUNDING = 1e-9


@dataclass(slots=True)
class Device:
    """One device."""

    kind: Kind
    #: share of the device that each model on it is planned to use
    load: dict[str, float] = field(default_factory=dict)
    #: Unix time since when each has been there
    since_s: dict[str, float] = field(default_factory=dict)
    memory_gib: float = 0.0  #: of the models on it
    used: float = 0.0  #: sum of the loads

    def copy(self) -> "Device":
        """Returns a device that changes by itself."""
        return Device(self.kind, dict(self.load), dict(self.since_s), self.memory_gib, self.used)

    def add(self, demand: Demand, load: float, at_s: float) -> None:
        """Gives a model a further load, which it is placed for unless it is there."""
        if demand.model not in self.load:
            self.memory_gib += demand.memory_gib
            self.since_s[demand.model] = at_s
        self.load[demand.model] = self.load.get(demand.model, 0.0) + load
        self.used += load

    def remove(self, demand: Demand) -> None:
        """Takes a model away."""
        self.memory_gib -= demand.memory_gib
        self.used -= self.load.pop(demand.model)
        del self.since_s[demand.model]

    def holds(self, demand: Demand) -> bool:
        """Returns True if the model is there, or there is memory for it."""
        free_gib = self.kind.memory_gib - self.memory_gib
        return demand.model in self.load or demand.memory_gib <= free_gib + ROUNDING


@dataclass(slots=True)
class Board:
    """Devices and models of a placement."""

    demands: Mapping[str, Demand]
    kinds: Sequence[Kind]
    most_used: float  #: load of a device, 0 to 1, that leaves room for bursts
    at_s: float = 0.0  #: Unix time of the plan
    devices: list[Device] = field(default_factory=list)
    unplaced: dict[str, float] = field(default_factory=dict)  #: entries a second, by model

    def copy(self) -> "Board":
        """Returns a board that changes by itself."""
        devices = [device.copy() for device in self.devices]
        shared = self.demands, self.kinds, self.most_used, self.at_s
        return Board(*shared, devices, dict(self.unplaced))

    @property
    def price(self) -> float:
        """Price of all devices an hour."""
        return sum(device.kind.price for device in self.devices)

    @property
    def rank(self) -> tuple[float, float]:
        """Orders boards, the better first: by work that found no place, then by price."""
        missing = sum(
            per_s / self.demands[model].per_s for model, per_s in self.unplaced.items() if per_s
        )
        return round(missing, 9), round(self.price, 9)

    @property
    def effort(self) -> float:
        """Price of all devices, and of the part of each that is used; less where that is
        concentrated on few of them. A search goes by it: what uses less may soon cost less."""
        return sum(
            device.kind.price * (1 + used - used * used / 2)
            for device in self.devices
            for used in [device.used / self.most_used]
        )

    def room(self, device: Device, demand: Demand) -> float:
        """Returns the entries a second of a model that a device has room for."""
        if not demand.fits(device.kind) or not device.holds(demand):
            return 0.0
        return max(0.0, self.most_used - device.used) * demand.rates[device.kind.name]

    def give(self, device: Device, demand: Demand, per_s: float) -> None:
        """Plans entries of a model on a device."""
        device.add(demand, per_s / demand.rates[device.kind.name], self.at_s)

    def open(self, kind: Kind) -> Device:
        """Adds a device."""
        device = Device(kind)
        self.devices.append(device)
        return device

    def available(self) -> Iterator[Kind]:
        """Yields the kinds of which there may be another device."""
        for kind in self.kinds:
            if kind.most is None or self._count(kind) < kind.most:
                yield kind

    def _count(self, kind: Kind) -> int:
        return sum(device.kind.name == kind.name for device in self.devices)
