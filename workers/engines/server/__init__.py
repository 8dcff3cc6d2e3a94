"""Engine `server`: an inference server that the worker starts, watches and ends.

It speaks OpenAI's API on loopback, and `workers/engines/upstream/streaming` is its client. A
guardian (`guardian.py`) stands between the worker and the server, so that neither outlives the
other.
"""
