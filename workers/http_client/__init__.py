"""Outgoing HTTP for webhooks and upstreams: a deadline for each request, checked addresses."""
