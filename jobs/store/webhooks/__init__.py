"""Deliveries, endpoints, secrets."""
