"""Connections to PostgreSQL that end where a server is silent, and the hosts that they lead to."""
