"""The live system on a virtual clock: the worker's own scheduler over lanes in memory.

Nothing is decided here. Arrivals, slots, launches and the bell follow what the api and
`workers/device/model_host.py` do with threads and Redis; pure functions, no I/O.
"""
