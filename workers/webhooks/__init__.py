"""Delivery of webhooks: one attempt over HTTP, the retry policy, and the sender."""
