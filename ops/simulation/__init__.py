"""Traces replayed against the scheduler on a virtual clock: what latency there would be, and how
many replicas it takes. The simulation itself stands in `workers/simulation/`."""
