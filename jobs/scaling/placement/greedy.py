"""Greedy placement: each model where it costs least, in the room that there is, else on devices of
the kind that is cheapest for it."""

from collections.abc import Iterable, Mapping
from random import Random

from jobs.scaling.placement.board import ROUNDING, Board, Device
from jobs.scaling.placement.demand import Demand, Kind

_FREE = 0.2  # worth of free time, of that of used time
_CRUMB = 0.05  # share of a device below which a load isn't worth another copy of its model


class Noise:
    """Factors around 1, which vary the choices of a search. spread: most that they differ from it;
    0: none."""

    def __init__(self, random: Random, spread: float) -> None:
        self._random, self._spread = random, spread

    def __call__(self) -> float:
        """Draws one."""
        return 1 + self._spread * (2 * self._random.random() - 1) if self._spread else 1.0


def fill(board: Board, work: Mapping[str, float], noise: Noise) -> None:
    """Places entries a second by model, those that take most first."""
    sizes = {model: _size(board, board.demands[model], per_s) for model, per_s in work.items()}
    for model in sorted(work, key=lambda it: -sizes[it] * noise()):
        _place(board, board.demands[model], work[model], noise)


def _place(board: Board, demand: Demand, per_s: float, noise: Noise) -> None:
    for place in (_whole_devices, _into_copies, _into_room, _new_devices):
        if per_s > _rounding(demand):
            per_s = place(board, demand, per_s, noise)
    if per_s > _rounding(demand):
        board.unplaced[demand.model] = board.unplaced.get(demand.model, 0.0) + per_s


def _whole_devices(board: Board, demand: Demand, per_s: float, noise: Noise) -> float:
    """Opens devices of the cheapest kind that the model fills alone. All these functions return
    what is left to place."""
    while kind := _cheapest(board, demand, float("inf"), noise):
        full = board.most_used * demand.rates[kind.name]
        if per_s < full:
            break
        board.give(board.open(kind), demand, full)
        per_s -= full
    return per_s


def _into_copies(board: Board, demand: Demand, per_s: float, _: Noise) -> float:
    return _into(board, demand, per_s, [d for d in board.devices if demand.model in d.load])


def _into_room(board: Board, demand: Demand, per_s: float, noise: Noise) -> float:
    """Uses devices with room: the one that it fills best, else the roomiest ones."""
    rooms = [(board.room(device, demand), device) for device in board.devices]
    whole = [(room, device) for room, device in rooms if room >= per_s]
    if whole:
        costs = [_cost_in(board, device, demand, per_s) * noise() for _, device in whole]
        return _into(board, demand, per_s, [whole[costs.index(min(costs))][1]])
    worth = [
        (room, device)
        for room, device in rooms
        if room > _CRUMB * demand.rates.get(device.kind.name, 0.0)
    ]
    roomiest = sorted(worth, key=lambda it: -it[0] * noise())
    return _into(board, demand, per_s, [device for _, device in roomiest])


def _new_devices(board: Board, demand: Demand, per_s: float, noise: Noise) -> float:
    while per_s > _rounding(demand) and (kind := _cheapest(board, demand, per_s, noise)):
        per_s = _into(board, demand, per_s, [board.open(kind)])
    return per_s


def _into(board: Board, demand: Demand, per_s: float, devices: Iterable[Device]) -> float:
    for device in devices:
        taken = min(per_s, board.room(device, demand))
        if taken > 0:
            board.give(device, demand, taken)
            per_s -= taken
    return per_s


def _cheapest(board: Board, demand: Demand, per_s: float, noise: Noise) -> Kind | None:
    """Returns the kind of a new device on which an entry costs least, by the part of it that is
    used up: time or memory, whichever is scarcer there."""
    kinds = [kind for kind in board.available() if demand.fits(kind)]

    def cost(kind: Kind) -> float:
        full = board.most_used * demand.rates[kind.name]
        taken = min(per_s, full)
        part = max(taken / full, demand.memory_gib / kind.memory_gib)
        return kind.price * part / taken * noise()

    return min(kinds, key=cost, default=None)


def _cost_in(board: Board, device: Device, demand: Demand, per_s: float) -> float:
    """Returns what the part of a device that a model takes is worth, and a part of what would then
    stay free: a device that is filled exactly is best."""
    load = per_s / demand.rates[device.kind.name]
    memory_gib = 0.0 if demand.model in device.load else demand.memory_gib
    part = max(load / board.most_used, memory_gib / device.kind.memory_gib)
    free = 1 - (device.used + load) / board.most_used
    return device.kind.price * (part + _FREE * free)


def _size(board: Board, demand: Demand, per_s: float) -> float:
    """Returns the part of a device that a model takes, where it takes least."""
    return min(
        (
            max(
                per_s / demand.rates[kind.name] / board.most_used,
                demand.memory_gib / kind.memory_gib,
            )
            for kind in board.kinds
            if demand.fits(kind)
        ),
        default=0.0,
    )


def _rounding(demand: Demand) -> float:
    return ROUNDING * max(1.0, demand.per_s)
