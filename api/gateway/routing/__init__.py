"""Routing of calls to versions, and copies of calls for a version that is tried out."""
