"""Engines, a file each; one is imported when a model uses it, torch with the first to need it."""
