"""Adapters of models that run in launches, and of all models where slices are claimed."""
