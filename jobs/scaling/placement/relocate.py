"""Relocation: empties a few devices at a time and places their models anew, as long as that saves
money."""

from math import exp
from random import Random

from jobs.scaling.placement import greedy
from jobs.scaling.placement.board import Board, Device
from jobs.scaling.placement.greedy import Noise

_MOST_EMPTIED = 4  # devices at a time
_MOST_LIFTED = 6  # copies on others, likewise
_SPREADS = (0.0, 0.1, 0.3)  # of the noise of one try
_WARM, _COLD = 0.001, 0.00005  # share of the price by which a step may be dearer, at first and last


def improve(board: Board, rounds: int, min_stay_s: float, *, strict: bool, seed: int = 0) -> Board:
    """Returns the best board that so many tries lead to.

    strict: only what saves money is changed; else the search also passes dearer boards, ever less
    (simulated annealing). Models that came less than min_stay_s ago stay. The same seed gives the
    same board.
    """
    random, best, now = Random(seed), board, board
    for n in range(rounds):
        trial = _relocated(now, min_stay_s, random, lift=not strict)
        if trial is None:
            break
        if trial.rank < best.rank:
            best = now = trial
        elif not strict and _is_passed(trial, now, n / rounds, random):
            now = trial
    return best


def _is_passed(trial: Board, now: Board, progress: float, random: Random) -> bool:
    if trial.rank[0] > now.rank[0]:
        return False
    warmth = _WARM * (_COLD / _WARM) ** progress
    return random.random() < exp(min(0.0, (now.effort - trial.effort) / (warmth * now.effort)))


def _relocated(board: Board, min_stay_s: float, random: Random, *, lift: bool) -> Board | None:
    """Returns a board with some devices emptied and their models placed anew; None: all must
    stay. lift: some of the models on other devices are, too."""
    movable = [n for n, device in enumerate(board.devices) if _may_go(board, device, min_stay_s)]
    if not movable:
        return None
    trial = board.copy()
    work = trial.unplaced
    trial.unplaced = {}
    emptied = random.sample(movable, min(len(movable), random.randint(1, _MOST_EMPTIED)))
    for n in emptied:
        for model in list(trial.devices[n].load):
            _lift(trial, trial.devices[n], model, work)
    for n in random.choices(movable, k=random.randint(0, _MOST_LIFTED) if lift else 0):
        if load := trial.devices[n].load:
            _lift(trial, trial.devices[n], random.choice(list(load)), work)
    trial.devices = [device for device in trial.devices if device.load]
    greedy.fill(trial, work, Noise(random, random.choice(_SPREADS)))
    return trial


def _lift(board: Board, device: Device, model: str, work: dict[str, float]) -> None:
    """Takes a model from a device, and adds what it was planned for to the work."""
    demand = board.demands[model]
    per_s = device.load[model] * demand.rates[device.kind.name]
    work[model] = work.get(model, 0.0) + per_s
    device.remove(demand)


def _may_go(board: Board, device: Device, min_stay_s: float) -> bool:
    return all(board.at_s - since_s >= min_stay_s for since_s in device.since_s.values())
