"""Engines for models that another server runs.

limiter ── concurrency   how many requests may be in flight
        └─ breaker       stops requests while the upstream fails
requester                one input's request, with a second try
client                   HTTP with headers, secrets and bounds
outcomes                 meaning of a response for the input and for the limiter
secrets                  keys from the environment or from files
"""
