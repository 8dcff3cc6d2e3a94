"""Calls that stream: deltas from a worker to a client, with deadlines and bounds."""
