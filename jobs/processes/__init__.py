"""Processes: packages that they find, fork servers, and children that do one task after another."""
