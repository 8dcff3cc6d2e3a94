"""Hosts of models: decide, close, run and deliver launches."""
