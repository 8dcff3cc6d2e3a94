"""Pydantic schemas of the native API with examples, one file per resource."""
