"""Clients of a fleet under faults.

client        HTTP with retries; the ledger of events with their proofs
workload      items of jobs, and their expected results
job_client    a client with its job: submission, verbs, reading while it runs, breaking off
streams       clients of streams of a model that generates, and what they must have read
load          threads of these clients
health_probe  times of /livez and /readyz meanwhile
"""
