"""Spot workers: notices that their machine will be taken away, and the drain that follows."""
