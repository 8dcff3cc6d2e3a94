"""Pages of models: those that are served, the registry, rollouts."""
