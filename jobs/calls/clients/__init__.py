"""Clients of the Redis that holds the call lanes: of one server, of a cluster, behind Sentinels."""
