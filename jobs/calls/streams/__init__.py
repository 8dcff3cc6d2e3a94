"""Streams that outlive the connection, and the api process, that they began on."""
