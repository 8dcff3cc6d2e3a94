"""Engines of texts whose network is an encoder, and the parts that they share."""
