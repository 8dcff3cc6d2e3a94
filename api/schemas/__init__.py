"""Pydantic schemas and examples of the native API, one file per resource."""
