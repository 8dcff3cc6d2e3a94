"""Outgoing HTTP with one deadline: webhooks and upstreams."""
