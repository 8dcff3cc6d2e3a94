"""Sending webhooks: one try over HTTP, what follows from its answer, and who does it when."""
