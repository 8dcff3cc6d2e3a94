"""Pydantic models and examples of the native API, one file a resource."""
