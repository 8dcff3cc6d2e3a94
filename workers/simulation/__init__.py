"""Simulation of the live system on a virtual clock: the worker's scheduler over lanes in memory.

It decides nothing itself. Arrivals, slots, launches and wake-ups follow what the api and
`workers/device/model_host.py` do with threads and Redis; pure functions, no I/O.
"""
