"""What the engines of models that someone else serves have in common.

gate ── concurrency   how many requests may be in flight
     └─ breaker       whether any may
client                one request, in bounds of time and size
outcomes              what an answer means for who asked, and for the gate
secrets               keys from the environment or from files
"""
