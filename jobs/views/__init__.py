"""JSON objects as clients see them."""
