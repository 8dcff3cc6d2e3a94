"""Simulations as commands and benchmarks ask for them."""

from workers.simulation.costs import NO_OVERHEADS, LaunchTimes, Overheads
from workers.simulation.result import Result
from workers.simulation.run import simulate

__all__ = ["NO_OVERHEADS", "LaunchTimes", "Overheads", "Result", "simulate"]
