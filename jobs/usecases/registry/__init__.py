"""Changes of the registry of models."""
